"""Parts without a frame: text and bytes, each sent when it is made, and broken off if the model fails."""

import json
import shutil
import subprocess
import urllib.request
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from harness import Serve, Server, until

TEXT, OCTETS, WAV = "text/plain", "application/octet-stream", "audio/wav"


def stream(server: Server, path: str, item: Any, accept: str, **headers: str) -> HTTPResponse:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", json.dumps(item).encode(), {"accept": accept, **headers}
    )
    request.add_header("content-type", "application/json")
    return urllib.request.urlopen(request, timeout=60)


def curl(server: Server, path: str, item: Any, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")
    command = [program, "-sSN", *arguments, "--json", json.dumps(item), f"http://127.0.0.1:{server.port}{path}"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


def test_text_is_sent_without_a_frame_to_clients_that_name_its_type(serve: Serve) -> None:
    server = serve("speaking.py")
    item = {"text": "hé🚌"}
    answer = server.post("/written", item, {"accept": TEXT})
    assert (answer.status, answer.body.decode()) == (200, "hé🚌")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert (answer.headers["transfer-encoding"], "content-length" in answer.headers) == ("chunked", False)
    assert "first-part" in answer.headers["server-timing"]
    for accept in ({}, {"accept": "*/*"}, {"accept": "application/json, text/plain, */*"}):
        whole = server.post("/written", item, accept)
        assert (whole.json(), whole.headers["content-type"]) == ("hé🚌", "application/json")
        assert "content-length" in whole.headers
    assert server.post("/written", {"text": ""}, {"accept": TEXT}).body == b""


def test_bytes_are_sent_in_their_own_type(serve: Serve) -> None:
    server = serve("speaking.py")
    item = {"text": "abc"}
    for path, accept, media in [("/raw", OCTETS, OCTETS), ("/wave", WAV, WAV), ("/wave", "audio/*", WAV)]:
        answer = server.post(path, item, {"accept": accept})
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"abc", media)
        assert answer.headers["transfer-encoding"] == "chunked"
    whole = server.post("/wave", item)
    assert (whole.body, whole.headers["content-type"], whole.headers["content-length"]) == (b"abc", WAV, "3")
    for path, accept in [("/raw", WAV), ("/wave", "image/png"), ("/written", WAV)]:
        refused = server.post(path, item, {"accept": accept})
        assert (refused.status, refused.reason) == (406, "not_acceptable")
        assert accept in refused.json()["detail"]
    previews = server.post("/shown", item, {"accept": OCTETS})
    assert previews.reason == "invalid_output", "the parts are not the answer, which is an image"


@pytest.mark.parametrize(("path", "accept"), [("/written", TEXT), ("/raw", OCTETS)])
def test_each_part_is_sent_when_it_is_made(path: str, accept: str, serve: Serve, tmp_path: Path) -> None:
    server = serve("speaking.py")
    gate = tmp_path / "gate"
    with stream(server, path, {"text": "abc", "gate": str(gate)}, accept) as answer:
        assert answer.read1() == b"a", "the model waits for the gate"
        gate.touch()
        assert answer.read() == b"bc"


def test_what_fails_before_the_first_part_has_its_status(serve: Serve) -> None:
    server = serve("speaking.py")
    for path, accept in [("/written", TEXT), ("/raw", OCTETS)]:
        early = server.post(path, {"text": "!"}, {"accept": accept})
        assert (early.status, early.reason) == (500, "model_failed")


def test_a_stream_that_fails_is_broken_off(serve: Serve, tmp_path: Path) -> None:
    server = serve("speaking.py", arguments=("--access-log", "1"))
    for path, accept in [("/written", TEXT), ("/raw", OCTETS)]:
        with stream(server, path, {"text": "ab!"}, accept, **{"x-request-id": f"mine-{accept}"}) as answer:
            with pytest.raises(IncompleteRead) as broken:
                answer.read()
            assert broken.value.partial == b"ab"
        until(lambda said=f"request mine-{accept}: model_failed": said in server.log(), "the reason in the log")
    assert "no shouting" in server.log()
    assert "its stream was broken off, because text/plain; charset=utf-8 cannot say that" in server.log()
    until(lambda: server.metric("jitney_streams_total", deployment="raw", outcome="model_failed") == 1, "the count")
    until(lambda: "deployment=raw outcome=model_failed status=200" in server.log(), "its line in the access log")
    timeout = {"x-request-timeout-ms": "500", "x-request-id": "late-1"}
    item = {"text": "ab", "gate": str(tmp_path / "never")}
    with stream(server, "/written", item, TEXT, **timeout) as answer, pytest.raises(IncompleteRead):
        answer.read()
    until(lambda: "request late-1: deadline_exceeded" in server.log(), "the client cannot read the reason elsewhere")


def test_curl_sees_that_a_stream_was_broken_off(serve: Serve) -> None:
    server = serve("speaking.py")
    for arguments, code in [((), 18), (("--http2-prior-knowledge",), 92)]:
        good = curl(server, "/written", {"text": "abc"}, "-H", f"accept: {TEXT}", *arguments)
        assert (good.returncode, good.stdout) == (0, b"abc")
        broken = curl(server, "/written", {"text": "ab!"}, "-H", f"accept: {TEXT}", *arguments)
        assert (broken.returncode, broken.stdout) == (code, b"ab")


def test_http_1_0_has_no_chunks_and_gets_the_whole_answer(serve: Serve) -> None:
    server = serve("speaking.py")
    answer = curl(server, "/written", {"text": "abc"}, "-i", "-0", "-H", f"accept: {TEXT}")
    head, _, body = answer.stdout.partition(b"\r\n\r\n")
    assert (b"content-length: 3" in head, body) == (True, b"abc")
    failed = curl(server, "/written", {"text": "ab!"}, "-i", "-0", "-H", f"accept: {TEXT}")
    assert b" 500 " in failed.stdout.splitlines()[0]


def test_a_refusal_names_the_forms_of_parts(serve: Serve) -> None:
    server = serve("speaking.py")
    also = "; the parts also come as text/event-stream or application/x-ndjson"
    for path, accept in [("/written", "application/jsonl"), ("/wave", "text/html")]:
        refused = server.post(path, {"text": "a"}, {"accept": accept})
        assert (refused.status, refused.json()["detail"].endswith(also)) == (406, True), refused.json()
    many = server.post("/written/batch", [{"text": "a"}], {"accept": "text/event-stream"})
    assert many.json()["detail"].startswith("this route answers whole, and not as text/event-stream; accept")


def test_the_line_to_try_shows_the_parts(serve: Serve) -> None:
    server = serve("speaking.py")
    until(lambda: "try: curl" in server.log(), "the line is there")
    line = next(line for line in server.log().splitlines() if "try: curl" in line).partition("try: ")[2]
    ran = subprocess.run(line, shell=True, capture_output=True, check=True, timeout=60)
    assert ran.stdout.startswith(b'data: "h"\n\ndata: "i"\n\nevent: end\n'), line


def test_the_page_shows_parts_as_they_come(serve: Serve, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    server = serve("speaking.py")
    script = Path(__file__).resolve().parents[1] / "node/docs_page.js"
    address = f"http://127.0.0.1:{server.port}"
    command = [node, str(script), address, "/written", str(tmp_path / "gate")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    shown = json.loads(ran.stdout)
    assert shown["early"] == 'data: "a"\n\n', "before the model may say the second letter"
    assert shown["whole"] == 'data: "a"\n\ndata: "b"\n\nevent: end\ndata: {"reason":"stop"}\n\n'
    assert shown["status"].startswith("200 in ")
    assert shown["curl"].startswith(f"curl -N {address}/written -H 'accept: text/event-stream' -H 'content-type")
