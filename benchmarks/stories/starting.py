"""How the stories start their servers: each as a separate process, with the same Python."""

import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import servers

from stories.story import Sample

Started = AbstractContextManager[servers.Running]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEPLOYED_WITHIN_S = 180


def importing(*folders: Path) -> str:
    """PYTHONPATH under which the stories, jitney and the modules of these folders are found."""
    own = [str(HERE.parent), str(ROOT / "python"), *map(str, folders)]
    return os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])


def under(load: Callable[[int], Sample], start: Callable[[], Started]) -> Callable[[], Sample]:
    """Measure a server: start it, put the load on its port, end it."""

    def measure() -> Sample:
        with start() as running:
            return load(running.port)

    return measure


class Door(NamedTuple):
    """Where to ask, and a body to find out with whether the server answers."""

    path: str
    first: bytes


@contextmanager
def fastapi(name: str, door: Door, environment: Mapping[str, str]) -> Iterator[servers.Running]:
    """`baselines/NAME.py` under uvicorn, answering."""
    with uvicorn(f"stories.baselines.{name}:app", door, environment) as running:
        yield running


@contextmanager
def uvicorn(application: str, door: Door, environment: Mapping[str, str]) -> Iterator[servers.Running]:
    """The application `MODULE:NAME` under uvicorn, answering."""
    port = servers.free_port()
    command = [
        sys.executable, "-m", "uvicorn", application, "--port", str(port),
        "--log-level", "warning", "--no-access-log", "--timeout-keep-alive", "75",
    ]  # fmt: skip
    with _running(f"FastAPI {application}", command, port, door, environment) as running:
        yield running


@contextmanager
def jitney(name: str, door: Door, environment: Mapping[str, str], *options: str) -> Iterator[servers.Running]:
    """`served/NAME.py` under `jitney serve`, answering."""
    with serve(HERE / "served" / f"{name}.py", door, environment, *options) as running:
        yield running


@contextmanager
def serve(file: Path, door: Door, environment: Mapping[str, str], *options: str) -> Iterator[servers.Running]:
    """The deployments of a file under `jitney serve`, answering."""
    port = servers.free_port()
    command = [sys.executable, "-m", "jitney", "serve", str(file), "--port", str(port)]
    command += [part for option in options for part in ("--set", option)]
    with _running(f"jitney {file.stem}", command, port, door, environment) as running:
        while not _is_ready(port):  # the first answer came from one replica; the others may still be loading
            time.sleep(0.05)
        yield running


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except urllib.error.HTTPError:
        return False


@contextmanager
def ray(name: str, door: Door, replicas: int) -> Iterator[servers.Running]:
    """`baselines/NAME.py` as a Ray Serve application, all of whose replicas are there."""
    port = servers.free_port()
    with tempfile.TemporaryDirectory() as folder:
        deployed = Path(folder) / "deployed"
        command = [sys.executable, "-m", f"stories.baselines.{name}", str(port), str(replicas), str(deployed)]
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": importing()}
        running = servers.Running(f"Ray {name}", command, port, door.path, environment)
        try:
            end = time.monotonic() + DEPLOYED_WITHIN_S
            while not deployed.exists():
                if running.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"Ray did not deploy {replicas} replicas within {DEPLOYED_WITHIN_S} s")
                time.sleep(0.2)
            running.wait_ready(door.first, "application/json")
            yield running
        finally:
            running.stop()


@contextmanager
def _running(
    name: str, command: list[str], port: int, door: Door, environment: Mapping[str, str]
) -> Iterator[servers.Running]:
    running = servers.Running(name, command, port, door.path, {"PYTHONPATH": importing(), **environment})
    try:
        running.wait_ready(door.first, "application/json")
        yield running
    finally:
        running.stop()
