"""The measured servers: each started as a separate process, and observed through /proc."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from peers.catalog import SERVED, SERVERS, Place
from peers.environments import is_installed, python_of

HERE = Path(__file__).resolve().parent
STREAMS = {name: f"streams.py:{name.capitalize()}" for name in ("parts", "chunks", "stamps", "steps", "batches")}
APPS = STREAMS | {"sleepy": "sleepy.py", "grouped": "sleepy.py", "rows": "tensors.py", "echo": "vectors.py"}
ECHO = {"sleepy": ("64",), "parts": ("stream",), "chunks": ("chunks",)}
"""What the bare hyper server is to do in place of a constant answer."""
ROUTES = {"chunks": "/v1/chat/completions"}
"""Models whose route is not their name."""
TICKS = os.sysconf("SC_CLK_TCK")
# The other servers serve the models of `make bench-peers`, at the settings that their files take without any.
PEERS = {"mosec": SERVERS["mosec"], "fastapi": SERVERS["fastapi-batched"]}
PEERS_MODELS = {"raw": "bytes"}


def memory_mb(pids: Iterable[int]) -> float:
    """Memory of these processes (RSS, added)."""
    total = 0
    for pid in pids:
        try:
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        except OSError:  # it has just ended
            continue
        total += int(found.group(1)) if found else 0
    return total / 1024


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a process to end, and kill it if it has not ended after 15 s."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Running:
    """One started server."""

    def __init__(self, name: str, command: list[str], port: int, path: str, environment: Mapping[str, str]) -> None:
        self.name, self.port, self.path = name, port, path
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by stop()
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=HERE,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def wait_ready(self, body: bytes, content_type: str, within_s: float = 60) -> None:
        """Until one request has its answer."""
        request = urllib.request.Request(self.url, body, {"content-type": content_type}, method="POST")
        end = time.monotonic() + within_s
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return
            except (OSError, urllib.error.URLError) as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    self._log.seek(0)
                    log = self._log.read().decode(errors="replace")[-2000:]
                    self.stop()
                    raise RuntimeError(f"{self.name} does not answer: {error}\n{log}") from error
            time.sleep(0.1)

    def pids(self) -> list[int]:
        """The process and everything that it started."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found = [self.process.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def workers(self) -> list[int]:
        return [
            pid for pid in self.pids() if b"jitney.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        ]

    def resident_mb(self, *, front_only: bool = False) -> float:
        return memory_mb([self.process.pid] if front_only else self.pids())

    def front_cpu_s(self) -> float:
        """User and system time of the first process: for jitney, the front."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self) -> None:
        family = self.pids() if self.process.poll() is None else []
        end(self.process)
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._log.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def echo_binary() -> Path:
    """Where cargo put the bare hyper server."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "echo/target"))
    return target / "release/echo"


def available() -> tuple[list[str], list[str]]:
    """Names of the servers that can be started here, and one line about each that cannot."""
    present, missing = [], []
    if shutil.which("jitney", path=str(Path(sys.executable).parent)):
        present.append("jitney")
    else:
        missing.append("jitney: not installed in the environment of this Python (run `make build`)")
    if echo_binary().exists():
        present.append("hyper")
    else:
        missing.append("hyper: benchmarks/echo is not built (make bench builds it)")
    for name, peer in PEERS.items():
        if is_installed(peer):
            present.append(name)
        else:
            missing.append(f"{name}: not installed (make peers)")
    return present, missing


def serving(target: str | Path, port: int, *arguments: str) -> list[str]:
    """The command that serves a target."""
    return [sys.executable, "-m", "jitney", "serve", str(target), "--port", str(port), *arguments]


def start(
    name: str, model: str, arguments: list[str] | None = None, environment: Mapping[str, str] | None = None
) -> Running:
    """Start server `name` with this model of `apps`."""
    port = free_port()
    if name in PEERS:
        peer = PEERS[name]
        place = Place(python_of(peer), port, model)
        told = {"BENCH_MODEL": PEERS_MODELS.get(model, model), "BENCH_PORT": str(port), "PYTHONPATH": str(SERVED)}
        return Running(name, peer.command(place, peer.cells[0]), port, "/inference", told)
    environment = {"BENCH_MODEL": model, **(environment or {})}
    app = HERE / "apps" / APPS.get(model, "noop.py")
    commands: dict[str, tuple[list[str], str]] = {
        "jitney": (
            serving(app, port, *(arguments or [])),
            ROUTES.get(model, f"/{model}"),
        ),
        "hyper": ([str(echo_binary()), str(port), *ECHO.get(model, ())], ROUTES.get(model, "/")),
    }
    command, path = commands[name]
    return Running(name, command, port, path, environment)
