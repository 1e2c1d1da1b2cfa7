"""The server that is started for a measurement: `jitney serve TARGET` on a free port."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from jitney_bench.server.address import HTTP_OK, PATIENCE_S, Address, ServerError, refused

START_S = 600.0
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
SHOWN_LINES = 30


class Child:
    """`jitney serve TARGET` for the time of a measurement. Use as a context."""

    def __init__(self, target: str, arguments: Sequence[str]) -> None:
        self._target = target
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        # Keys are for clients; a server that only its parent can reach needs none.
        environment = {
            name: value for name, value in os.environ.items() if name not in ("JITNEY_CLIENT_KEY", "JITNEY_API_KEYS")
        }
        self._process = subprocess.Popen(
            # At this level the log says where it listens, whatever environment and file want of it.
            [sys.executable, "-P", "-m", "jitney", "serve", target, "--port", "0", "--log-level", "info", *arguments],
            # It ends with this process, however that ends.
            env=environment | {"JITNEY_RELOAD_PARENT": str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            process_group=0,  # Ctrl-C is for the parent, which then ends the child
        )

    def __enter__(self) -> Self:
        """Nothing more: `wait_ready` says where it listens."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """Of the front."""
        return self._process.pid

    def wait_ready(self, headers: Sequence[tuple[str, str]]) -> Address:
        """Wait until every deployment is ready; ServerError if that does not come."""
        end = time.monotonic() + START_S
        address: Address | None = None
        status, body = 0, b""
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise ServerError(f"{self._target} cannot be served:\n{self._tail()}")
            if address is None and (found := LISTENING.search(self._text())):
                address = Address("127.0.0.1", int(found[1]))  # with no header that would make it refuse
            # While it ends because a model cannot be loaded, it does not answer.
            with contextlib.suppress(ServerError):
                if address is not None:
                    status, body = address.request("GET", "/readyz")
            if address is not None and status == HTTP_OK:
                return replace(address, headers=headers)
            if address is not None and 400 <= status < 500:
                raise ServerError(refused(address.url, "/readyz", status, body))
            time.sleep(0.05)
        raise ServerError(f"{self._target} was not ready after {START_S:.0f} s:\n{self._tail()}")

    def _text(self) -> str:
        # `pread` leaves the place alone at which the child writes.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def _tail(self) -> str:
        return "\n".join(self._text().splitlines()[-SHOWN_LINES:])
