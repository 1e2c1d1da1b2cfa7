"""A server as a process group: start, request, memory, stop while others are measured, end."""

import http.client
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from peers.catalog import Request

Answer = tuple[int, bytes, dict[str, str]]
"""Status, body, headers in lower case."""


# Servers that are not ready yet say 404 or 503; these will not go away.
MISUNDERSTOOD = (400, 405, 413, 415, 422)


class DoesNotStartError(Exception):
    """The server ended, or did not answer in time; the message is what it said last."""


def free_port() -> int:
    """A port of the range that `BENCH_PORTS` allows ("18200-18299"), or any."""
    first, _, last = os.environ.get("BENCH_PORTS", "0-0").partition("-")
    ports = list(range(int(first), int(last) + 1))
    random.shuffle(ports)  # two runs at once do not reach for the same one
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return listener.getsockname()[1]
    raise OSError(f"no free port in BENCH_PORTS={first}-{last}")


def send(port: int, request: Request, timeout_s: float) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    headers = {"content-type": request.content_type, **dict(line.split(": ", 1) for line in request.headers)}
    try:
        connection.request("POST", request.path, request.body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


class Process:
    """One started server with everything that it started."""

    def __init__(self, command: list[str], port: int, environment: Mapping[str, str], folder: Path) -> None:
        self.port = port
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by stop()
        self._is_held = False
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )

    def wait_ready(self, request: Request, within_s: float) -> Answer:
        """Until one request is answered with 200."""
        end, said = time.monotonic() + within_s, "nothing"
        while True:
            try:
                answer = send(self.port, request, 10)
                if answer[0] == 200:
                    return answer
                said = f"{answer[0]} {answer[1][:300].decode(errors='replace')}"
                if answer[0] in MISUNDERSTOOD:
                    raise DoesNotStartError(f"it does not take this request: {said}")
            except (OSError, http.client.HTTPException) as error:
                said = str(error)
            if self._process.poll() is not None:
                raise DoesNotStartError(f"it ended with {self._process.returncode}: {self.last_words()}")
            if time.monotonic() > end:
                raise DoesNotStartError(f"no answer within {within_s:.0f} s ({said}): {self.last_words()}")
            time.sleep(0.1)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-6:])[-800:] or "it said nothing"

    def pids(self) -> list[int]:
        """The process, everything that it started, and what of its session was left by parents that ended."""
        children: dict[int, list[int]] = {}
        orphans: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            if int(fields[3]) == self._process.pid:
                orphans.append(int(entry.name))
        found = [self._process.pid]
        for pid in found:
            found += (child for child in children.get(pid, []) if child not in found)
        return found + [pid for pid in orphans if pid not in found]

    def memory_mb(self) -> float:
        """The proportional share of all processes: what several of them share counts once."""
        total = 0
        for pid in self.pids():
            try:
                found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            except OSError:
                continue
            total += int(found.group(1)) if found else 0
        return total / 1024

    def hold(self) -> None:
        """Stop all processes (SIGSTOP), so that they do not disturb the measured server."""
        self._signal(signal.SIGSTOP)
        self._is_held = True

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self._is_held = False

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        if self._log.closed:
            return
        if self._is_held:
            self.go_on()
        family = self.pids()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in {*family, *self.pids()} - {self._process.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._log.close()
