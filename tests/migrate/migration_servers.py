"""Servers of both sides as a reader of a page starts them, and the requests of the page."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from migration_cases import PEERS, Case, Side, files, is_shown
from pages import ROOT, Command, run_line

sys.path.append(str(ROOT / "benchmarks"))
catalog: Any = importlib.import_module("peers.catalog")
environments: Any = importlib.import_module("peers.environments")
process: Any = importlib.import_module("peers.process")

PATIENCE_S = 120
# No server reports home from a test.
ENVIRONMENT = {
    "BENTOML_DO_NOT_TRACK": "True",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    # The interpreter in PyTriton 0.7.0 is older than 3.11.7, whose shared memory it cannot use.
    "PYTRITON_NO_TENSORSTORE": "1",
}
PORTS = ("8000", "8001", "8002")


def bin_of(page: str) -> Path:
    """The folder of the programs of the page's server; the test is skipped if it is not asked for."""
    name = PEERS[page]
    if name is None:
        return Path(sys.executable).parent
    server = catalog.SERVERS[name]
    skip_unless_asked(server.title)
    assert environments.is_installed(server), f"{server.title} is not installed: `make peers PEERS={name}`"
    return environments.python_of(server).parent


def triton_of(programs: Path, folder: Path) -> Path:
    """A folder with the program `tritonserver`: PyTriton brings it, but not on the path."""
    (brought,) = (programs.parent / "lib").glob("python3*/site-packages/pytriton/tritonserver")
    backend = folder / "backends/python"
    backend.mkdir(parents=True)
    stubs = brought / f"python_backend_stubs/{sys.version_info.major}.{sys.version_info.minor}"
    for path in [*(brought / "backends/python").iterdir(), *stubs.iterdir()]:
        (backend / path.name).symlink_to(path)
    program = folder / "tritonserver"
    packages = brought.parents[1]
    program.write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={packages}/nvidia_pytriton.libs:{brought}/external_libs\n"
        f"export PYTHONPATH={packages}\n"
        f'exec {brought}/bin/tritonserver --backend-directory {folder}/backends "$@"\n'
    )
    program.chmod(0o755)
    return folder


def save(folder: Path, pages: list[str], ports: list[int]) -> Path:
    """Save the files of pages as a reader would, with free ports in place of those of the page."""
    for page in pages:
        for name, text in files(page).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(with_ports(text, ports))
    return folder


def with_ports(text: str, ports: list[int]) -> str:
    for shown, port in zip(PORTS, ports, strict=False):
        text = re.sub(rf"\b{shown}\b", str(port), text)
    return text


def skip_unless_asked(title: str) -> None:
    if not os.environ.get("JITNEY_TEST_MIGRATE"):
        pytest.skip(f"{title} is not part of `make test`: `make test-migrate` installs it and runs this")


@contextmanager
def in_ray_cluster(case: Case, lines: list[str], folder: Path) -> Generator[list[str]]:
    """Start a cluster of this machine alone, and jitney with its replicas there; gives the answers to the requests."""
    skip_unless_asked("Ray")
    programs = ROOT / ".venv-ray/bin"
    assert (programs / "ray").exists(), "Ray is not installed: `make ray-packages`"
    ports = [process.free_port() for _ in PORTS]
    start, serve = lines
    serve = f"{programs}/python -m {serve} --port {ports[0]}"
    # Ray makes sockets in its folder: a long path does not fit.
    with tempfile.TemporaryDirectory(prefix="jtm-", dir="/tmp", ignore_cleanup_errors=True) as short:
        options = f"--block --port={ports[1]} --num-cpus=4 --include-dashboard=false --temp-dir={short}"
        environment = {**ENVIRONMENT, "RAY_ADDRESS": f"127.0.0.1:{ports[1]}", "RAY_AUTH_MODE": "disabled"}
        there = save(folder, [case.page], ports)
        head = process.Process(["bash", "-c", f"exec {programs}/{start} {options}"], ports[1], environment, there)
        server = process.Process(["bash", "-c", f"exec {serve}"], ports[0], environment, there)
        try:
            wait_ready(server, case.ours, there, ports)
            yield answers(case.ours, there, ports)
        finally:
            server.stop()
            head.stop()


@contextmanager
def started(case: Case, side: Side, folder: Path, programs: Path) -> Generator[list[str]]:
    """Start a server by its command, whose program is in `programs`; gives the answers to its requests."""
    ports = [process.free_port() for _ in PORTS]
    there = save(folder, [case.page], ports)
    command = ["bash", "-c", f"exec {with_ports(side.command, ports)}"]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    if side.command.startswith("tritonserver"):
        path = f"{triton_of(programs, folder / 'triton')}{os.pathsep}{path}"
    server = process.Process(command, ports[0], {**ENVIRONMENT, "PATH": path}, there)
    try:
        wait_ready(server, side, there, ports)
        yield answers(side, there, ports)
    finally:
        server.stop()


def wait_ready(server: Any, side: Side, folder: Path, ports: list[int]) -> None:
    """Wait until the first request is answered as the page says."""
    end, said = time.monotonic() + PATIENCE_S, ""
    while True:
        first = side.calls[0]
        ran = run(first.line, folder, ports)
        said = ran.stdout + ran.stderr
        if ran.returncode == 0 and is_shown(first.output, ran.stdout):
            return
        log = server.last_words()
        assert server.is_running(), f"{side.command} ended: {log}"
        assert time.monotonic() < end, f"{side.command}: {first.line} prints\n{said}\nand its log\n{log}"
        time.sleep(0.2)


def answers(side: Side, folder: Path, ports: list[int]) -> list[str]:
    """Send the requests of a side; each must print what the page shows."""
    return [answer(call, folder, ports) for call in side.calls]


def answer(call: Command, folder: Path, ports: list[int]) -> str:
    ran = run(call.line, folder, ports)
    assert ran.returncode == 0, f"{call}: {ran.stdout}{ran.stderr}"
    assert is_shown(call.output, ran.stdout), f"{call}: it prints\n{ran.stdout}\nand not\n{call.output}"
    return ran.stdout


def run(line: str, folder: Path, ports: list[int]) -> subprocess.CompletedProcess[str]:
    if line.startswith("curl") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return run_line(with_ports(line, ports), folder)
