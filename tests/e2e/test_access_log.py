"""The access log: a line for each request of every protocol, off the way of requests, and never in their way."""

# pyright: basic, reportMissingTypeStubs=false, reportOptionalMemberAccess=false

import fcntl
import http.client
import json
import os
import queue
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jitney
import numpy as np
import pytest
from harness import APPS, Serve, Server, until
from test_log import UnixConnection
from triton_clients import TritonClient

Line = dict[str, Any]


def json_lines(server: Server) -> list[Line]:
    documents = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [document for document in documents if document["message"] == "access"]


def until_lines(server: Server, least: int = 1, **wanted: object) -> list[Line]:
    """The lines with these fields, once there are so many."""

    def found() -> list[Line]:
        lines = [line for line in json_lines(server) if wanted.items() <= line.items()]
        return lines if len(lines) >= least else []

    return until(found, f"{least} lines with {wanted} are in the log")


def without_times(line: Line) -> Line:
    return {name: value for name, value in line.items() if name not in ("timestamp", "duration_ms", "level", "message")}


def test_requests_of_http_have_a_line_each(serve: Serve) -> None:
    server = serve("noop.py", arguments=("--access-log", "1", "--log-format", "json"))
    assert server.post("/shout", "hello", {"x-request-id": "one"}).status == 200
    (line,) = until_lines(server, request_id="one")
    assert without_times(line) == {
        **{"request_id": "one", "protocol": "native", "client": "127.0.0.1"},
        **{"method": "POST", "path": "/shout", "deployment": "shout"},
        **{"outcome": "ok", "status": 200, "items": 1, "batch_size": 1, "request_bytes": 7, "answer_bytes": 7},
    }
    assert line["duration_ms"] > 0 and line["timestamp"].endswith("Z") and line["level"] == "INFO"
    server.post("/shout/batch", ["a", 2, "b"], {"x-request-id": "many"})
    (line,) = until_lines(server, request_id="many")
    assert (line["items"], line["outcome"], line["path"]) == (3, "ok", "/shout/batch")
    server.post("/shout", 7, {"x-request-id": "invalid"})
    (line,) = until_lines(server, request_id="invalid")
    assert (line["outcome"], line["status"], line["deployment"]) == ("invalid_input", 422, "shout")
    server.post("/shout", b"x", {"x-request-id": "picture", "content-type": "image/png"})
    (line,) = until_lines(server, request_id="picture")
    assert (line["outcome"], line["status"], line["items"]) == ("unsupported_media_type", 415, 0)
    with server.client() as client:
        client.request("GET", "/nowhere?secret=1", headers={"x-request-id": "nowhere"})
        client.request("GET", "/readyz", headers={"x-request-id": "page"})
    (line,) = until_lines(server, request_id="nowhere")
    assert (line["outcome"], line["status"], line["path"]) == ("not_found", 404, "/nowhere")
    assert "deployment" not in line
    (line,) = until_lines(server, request_id="page")
    assert line["status"] == 200 and "outcome" not in line and line["answer_bytes"] > 0


def test_a_client_that_leaves_has_a_line(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--access-log", "1", "--log-format", "json"))
    server.shut_gate()
    with server.client(timeout_s=0.5) as client, suppress(TimeoutError, http.client.HTTPException):
        client.post("/sleepy", "gone", {"x-request-id": "gone"})
    (line,) = until_lines(server, request_id="gone")
    assert (line["outcome"], line["status"], line["deployment"]) == ("cancelled", 499, "sleepy")
    assert line["duration_ms"] > 100
    server.open_gate()


def test_other_protocols_have_the_same_lines(serve: Serve) -> None:
    place = "unix:programs.sock"
    arguments = ("--access-log", "1", "--log-format", "json", "--listen-programs", place)
    server = serve("embedders.py", "arrays.py", arguments=arguments)
    assert server.post("/v1/embeddings", {"model": "words", "input": ["a b", "c"]}).status == 200
    (line,) = until_lines(server, protocol="openai")
    assert (line["deployment"], line["items"], line["outcome"]) == ("words", 2, "ok")
    for kind, protocol in (("http", "open_inference"), ("grpc", "grpc")):
        with TritonClient(kind, server.port) as client:
            client.infer("double", {"values": np.ones((3, 2), np.float32)})
        lines = [line for line in until_lines(server, protocol=protocol) if "deployment" in line]
        assert [(line["deployment"], line["items"], line["outcome"]) for line in lines] == [("double", 3, "ok")]
        assert lines[0]["request_bytes"] > 24 and lines[0]["answer_bytes"] > 24
    answers: queue.Queue[object] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put(error))
        for size in (1, 2):
            client.client.async_stream_infer("double", [client.tensor("values", np.ones((size, 4), np.float32))])
            assert answers.get(timeout=30) is None
        client.client.stop_stream()
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    until(
        lambda: len([line for line in json_lines(server) if line.get("path") == path]) >= 3, "three lines of a stream"
    )
    of_stream = [line for line in json_lines(server) if line.get("path") == path]
    assert {line["client"] for line in of_stream} == {"127.0.0.1"}
    messages = [(line["items"], line["outcome"]) for line in of_stream if "deployment" in line]
    assert messages == [(1, "ok"), (2, "ok")] and len(of_stream) == 3
    folder = Path(f"/proc/{server.process.pid}/cwd").resolve()
    with jitney.connect_sync(f"unix:{folder}/programs.sock") as models:
        models.words.many(["a", "b"], request_id="program")
        with pytest.raises(jitney.InvalidInput):
            models.words("bad", request_id="bad")
    (line,) = until_lines(server, request_id="program")
    assert without_times(line) == {
        **{"request_id": "program", "protocol": "programs", "deployment": "words", "outcome": "ok", "status": 200},
        **{"items": 2, "batch_size": 2, "request_bytes": 2, "answer_bytes": line["answer_bytes"]},
    }
    (line,) = until_lines(server, request_id="bad")
    assert (line["outcome"], line["status"]) == ("invalid_input", 422)


def test_a_call_of_a_model_has_the_id_of_the_request_that_it_works_on(serve: Serve, tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/programs.sock"
    arguments = ("--access-log", "1", "--log-format", "json", "--listen-programs", place)
    server = serve("relay.py", arguments=arguments, environment={"JITNEY_TEST_PROGRAMS": place})
    assert server.post("/outer", "one", {"x-request-id": "chain"}).json() == "one!!!"
    assert len(until_lines(server, 3, request_id="chain", protocol="programs", deployment="inner")) == 3
    assert len(until_lines(server, request_id="chain", protocol="native", deployment="outer")) == 1
    assert server.post("/outer/batch", ["a", "b"], {"x-request-id": "both"}).json()["failed"] == 0
    assert len(until_lines(server, 6, request_id="both", protocol="programs")) == 6


def test_a_share_of_the_requests_has_lines_of_text(serve: Serve) -> None:
    server = serve("noop.py", arguments=("--access-log", "0.25"))
    with server.client() as client:
        for number in range(200):
            client.post("/shout", "x", {"x-request-id": f"n{number}"})
    server.terminate()
    assert server.wait_exit() == 0
    lines = [line for line in server.log().splitlines() if " access request_id=n" in line]
    assert 45 <= len(lines) <= 55
    assert all(
        line.split("  INFO ")[0].endswith("Z")
        and " client=127.0.0.1 method=POST path=/shout deployment=shout outcome=ok status=200 " in line
        for line in lines
    )


def test_without_the_option_there_are_no_lines(serve: Serve) -> None:
    server = serve("noop.py")
    server.post("/shout", "x", {"x-request-id": "none"})
    assert "request_id=none" not in server.log()


def test_a_log_that_nobody_reads_costs_lines_and_says_how_many(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "jitney", "serve", "noop.py", "--listen", f"unix:{path}", "--access-log", "1"]
    process = subprocess.Popen([*command, "--log-level", "error"], cwd=APPS, stderr=writer)
    os.close(writer)
    try:
        connection = until(lambda: opened(path), "it listens")
        for _ in range(9000):
            connection.request("GET", "/livez")
            assert connection.getresponse().read()
        connection.close()
        text = b""
        while b" lines, because nothing read the log fast enough" not in text:
            text += os.read(reader, 65536)
        lost = [int(line.split()[6]) for line in text.splitlines() if b"the access log lost" in line]
        assert lost and sum(lost) > 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def opened(path: str) -> UnixConnection | None:
    connection = UnixConnection(path)
    try:
        connection.connect()
    except OSError:
        connection.close()
        return None
    return connection
