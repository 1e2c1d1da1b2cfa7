"""`make bench-peers` in small: jitney and plain FastAPI, one cell, real processes, answers checked."""

import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
catalog: Any = importlib.import_module("peers.catalog")
environments: Any = importlib.import_module("peers.environments")
generator: Any = importlib.import_module("peers.generator")
loads: Any = importlib.import_module("peers.loads")
measure: Any = importlib.import_module("peers.measure")
plan: Any = importlib.import_module("peers.plan")
process: Any = importlib.import_module("peers.process")
reports: Any = importlib.import_module("peers.report")

FASTAPI = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn"))
TINY = plan.Plan(("noop",), ("closed 1", "open 60%"), repetitions=1, seconds=0.5)

# Servers with answers in parts whose environment `make peers` has installed, and its Python.
INSTALLED = {
    name: environments.python_of(server)
    for name, server in catalog.SERVERS.items()
    if "stream-noop" in server.loads and server.requirements and environments.is_installed(server)
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers run with this Python: no environment is installed by a test."""

    def python_of(_: object) -> Path:
        return Path(sys.executable)

    monkeypatch.setattr(environments, "python_of", python_of)


@pytest.mark.skipif(not FASTAPI, reason="FastAPI and uvicorn are not installed here")
@pytest.mark.timeout(180)
def test_one_cell_of_jitney_and_fastapi_is_measured_and_written(tmp_path: Path) -> None:
    servers = [catalog.SERVERS["jitney"], catalog.SERVERS["fastapi-naive"]]
    report = reports.Report(tmp_path / "peers.json")
    run = measure.Run(TINY, servers, generator.named("bench"), report)
    run.everything()
    written = json.loads(report.path.read_text())
    assert written["problems"] == []
    assert {(sample["server"], sample["point"]) for sample in written["samples"]} == {
        (server, point) for server in ("jitney", "fastapi-naive") for point in TINY.points
    }
    for sample in written["samples"]:
        assert sample["figures"]["rps"] > 0
        assert sample["figures"]["p50_ms"] > 0
        assert sample["figures"]["memory_mb"] > 10
    assert all(run.is_done("noop", server) for server in servers), "a second run has nothing left to do"


@pytest.mark.skipif(not FASTAPI, reason="FastAPI and uvicorn are not installed here")
@pytest.mark.timeout(180)
def test_parts_of_jitney_and_fastapi_are_measured_and_written(tmp_path: Path) -> None:
    servers = [catalog.SERVERS["jitney"], catalog.SERVERS["fastapi-stream"]]
    report = reports.Report(tmp_path / "peers.json")
    tiny = plan.Plan(("stream-noop", "stream-sleepy"), ("closed 1",), repetitions=1, seconds=0.5)
    measure.Run(tiny, servers, generator.named("bench"), report).everything()
    written = json.loads(report.path.read_text())
    assert written["problems"] == []
    assert {(sample["server"], sample["load"]) for sample in written["samples"]} == {
        (server.name, load) for server in servers for load in tiny.loads
    }
    for sample in written["samples"]:
        assert sample["figures"]["parts_s"] > 0 and sample["figures"]["first_p50_ms"] > 0
        assert sample["figures"]["broken"] == 0


@pytest.mark.parametrize("name", ["litserve-one", "pytriton-loop", "pytriton-batch", "bentoml-stream"])
@pytest.mark.timeout(180)
def test_each_setting_of_a_server_streams_all_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in INSTALLED:
        pytest.skip(f"{name} is not installed here (make peers PEERS={name})")

    def python_of(_: object) -> Path:
        return INSTALLED[name]

    monkeypatch.setattr(environments, "python_of", python_of)
    server = catalog.SERVERS[name]
    for load in server.loads:
        for cell in server.cells:
            one = measure.start(server, load, cell)  # compares the texts of 16 streams at once
            item = loads.STREAMS[load].distinct(3)
            try:
                _, body, _ = process.send(one.offer.port, server.request(load, item), 30)
                figures = generator.named("bench").closed(one.offer, 2, 0.5)
            finally:
                one.process.stop()
            events = [line for line in body.splitlines() if line.startswith(b"data:") and b"[DONE]" not in line]
            assert len(events) == item["parts"]
            assert figures["answered"] > 0 and figures["broken"] == figures["refused"] == 0


@pytest.mark.timeout(180)
def test_a_server_that_answers_wrongly_is_not_measured(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import http.server, os\n"
        "class Wrong(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        self.rfile.read(int(self.headers['content-length']))\n"
        '        body = b\'{"text": "of somebody else"}\'\n'
        "        self.send_response(200)\n"
        "        self.send_header('content-length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "http.server.ThreadingHTTPServer.request_queue_size = 64\n"  # the sixteen come at once
        "http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['BENCH_PORT'])), Wrong).serve_forever()\n"
    )

    def command(_place: object, _cell: object) -> list[str]:
        return [sys.executable, str(wrong)]

    server = catalog.Server("wrong", "Wrong", "", "none", command)
    report = reports.Report(tmp_path / "peers.json")
    measure.Run(TINY, [server], generator.named("bench"), report).everything()
    (problem,) = report.data["problems"]
    assert problem["reason"].startswith("16 of 16 answers were not right")
    assert report.data["samples"] == []


@pytest.mark.timeout(60)
def test_a_server_that_stands_still_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    script = (
        child + "import http.server; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), "
        "type('H', (http.server.BaseHTTPRequestHandler,), {'do_POST': lambda self: (self.send_response(200), "
        "self.send_header('content-length', '0'), self.end_headers())})).serve_forever()"
    )
    port = process.free_port()
    running = process.Process([sys.executable, "-c", script, str(port)], port, {}, tmp_path)
    request = catalog.Request("/", b"{}")
    try:
        running.wait_ready(request, 30)
        family = running.pids()
        assert len(family) == 2
        running.hold()
        end = time.monotonic() + 10
        while not all(state(pid) == "T" for pid in family):
            assert time.monotonic() < end, "a signal does not take effect at once, but soon"
        running.go_on()
        assert running.wait_ready(request, 30)[0] == 200
    finally:
        running.stop()
    while any(is_alive(pid) for pid in family):
        assert time.monotonic() < end + 20, "a killed process ends soon"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_alive(pid: int) -> bool:
    """Zombie processes do not count as alive."""
    try:
        os.kill(pid, 0)
        return state(pid) != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
