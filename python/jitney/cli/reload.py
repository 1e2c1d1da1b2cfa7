"""`--reload`: runs `jitney serve` as a child and signals it when Python files change; it then replaces its workers.

The child is started again when the configuration file changes, when it failed and anything changes, and when it asks
for that because its deployments are not what they were. It does not serve anything itself.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGED: Final = signal.SIGUSR1
"""Notifies the child that Python files have changed. It ends a child that does not handle it yet."""
RESTART_CODES: Final = (75, 128 + CHANGED)
"""Exit codes that ask for another start: 75 as in the Rust server, and that of a child that `CHANGED` ended."""
SETTLE_S: Final = 10.0
"""A child that asks for another start within this time, although no file changed, would ask again."""


class Reloader:
    """One child at a time. Signals are passed on to it; its exit code is returned."""

    def __init__(
        self,
        command: Sequence[str],
        changes: Iterator[bool],
        configuration: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take what to run; `changes` reports every moment whether Python files changed since its last report."""
        self._command = list(command)
        self._changes = changes
        self._configuration = configuration
        self._environment = environment or {}
        self._child: subprocess.Popen[bytes] | None = None
        self._stop_signal: int | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Serve until a signal stops it; returns the exit code of the last child."""
        handlers = {number: signal.signal(number, self._stop) for number in SIGNALS}
        try:
            return self._run()
        finally:
            if self._child is not None and self._child.poll() is None:
                self._child.kill()
                self._child.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        next(self._changes)  # what changes from here on is reported
        restarts = 0
        while True:
            started = time.monotonic()
            configuration = self._state_of_configuration()
            code, has_changed = self._serve(configuration)
            if self._stop_signal is not None:
                return code
            if self._state_of_configuration() != configuration:
                print("jitney: the configuration changed, restarting", file=sys.stderr)
                continue
            if code == 0:
                return code
            is_unprovoked = code in RESTART_CODES and not has_changed and time.monotonic() - started < SETTLE_S
            restarts = restarts + 1 if is_unprovoked else 0
            if code not in RESTART_CODES:
                print(f"jitney: the server ended with exit code {code}; waiting for a change", file=sys.stderr)
            elif restarts > 1:
                print("jitney: its deployments differ from process to process; waiting for a change", file=sys.stderr)
            else:
                continue
            if not self._wait_for_change(configuration):
                return code

    def _serve(self, configuration: object) -> tuple[int, bool]:
        """Run one child, until it ends; returns its exit code, and whether Python files changed meanwhile."""
        environment = os.environ | self._environment
        self._is_stopping = has_changed = False
        # Its own group: Ctrl-C then reaches the child once, from here, and not a second time from the terminal.
        self._child = subprocess.Popen(self._command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
        while self._child.poll() is None:
            if not self._is_stopping:  # a signal may have come while the child was being started
                if self._stop_signal is not None:
                    self._end_child(self._stop_signal)
                elif self._state_of_configuration() != configuration:
                    self._end_child(signal.SIGTERM)
            if next(self._changes):
                has_changed = True
                if not self._is_stopping and self._child.poll() is None:
                    self._child.send_signal(CHANGED)
        return _exit_code(self._child.returncode), has_changed

    def _wait_for_change(self, configuration: object) -> bool:
        """Return True after a change, False after a signal to stop."""
        while self._stop_signal is None:
            if next(self._changes) or self._state_of_configuration() != configuration:
                return True
        return False

    def _state_of_configuration(self) -> object:
        try:
            state = self._configuration.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._stop_signal = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        self._end_child(self._stop_signal)

    def _end_child(self, number: int) -> None:
        if self._child is not None and self._child.poll() is None:
            self._is_stopping = True
            self._child.send_signal(number)


def _exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode
