"""Compressed answers: for clients that accept them, of text from a size on, and never of streams."""

import gzip
import zlib

import pytest
from harness import JSON, Serve, Server

LONG = "abc" * 50_000


def ask(server: Server, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[str, int, bytes]:
    """Return the coding, the bytes that were sent, and the answer."""
    with server.client() as client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = client.request(method, path, body, given)
    assert reply.status == 200, reply
    coding = reply.headers.get("content-encoding", "")
    assert int(reply.headers["content-length"]) == len(reply.body) or method == "HEAD"
    inflate = {"gzip": gzip.decompress, "deflate": zlib.decompress, "": bytes}[coding]
    return coding, len(reply.body), inflate(reply.body) if reply.body else b""


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_metrics_are_compressed_when_asked_for(serve: Serve, coding: str) -> None:
    server = serve("noop.py")
    used, sent, text = ask(server, "GET", "/metrics", accept_encoding=coding)
    assert used == coding
    assert b"jitney_connections 1\n" in text
    assert sent < len(text) / 5
    openmetrics = "application/openmetrics-text"
    used, _, text = ask(server, "GET", "/metrics", accept=openmetrics, accept_encoding="gzip, deflate, br")
    assert (used, text.splitlines()[-1]) == ("gzip", b"# EOF")
    assert ask(server, "HEAD", "/metrics", accept_encoding=coding)[:2] == (coding, 0)
    for page, used in [("/config", coding), ("/openapi.json", coding), ("/docs", coding), ("/livez", "")]:
        assert ask(server, "GET", page, accept_encoding=coding)[0] == used, page
    assert ask(server, "GET", "/metrics")[0] == ""
    assert ask(server, "GET", "/metrics", accept_encoding="identity")[0] == ""


def test_answers_of_models_are_compressed_from_a_size_on(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--compress-from-bytes", "100000"))
    call = ("POST", "/sleepy")
    for text, coding in [(LONG, "gzip"), ("short", "")]:
        body = f'"{text}"'.encode()
        used, sent, answer = ask(server, *call, body, content_type=JSON, accept_encoding="gzip")
        assert (used, answer) == (coding, f'"{text[::-1]}"'.encode())
        assert sent < 10_000
    assert ask(server, *call, f'"{LONG}"'.encode(), content_type=JSON)[0] == ""


def test_zero_compresses_no_answer_of_a_model(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--compress-from-bytes", "0"))
    assert ask(server, "POST", "/sleepy", f'"{LONG}"'.encode(), content_type=JSON, accept_encoding="gzip")[0] == ""
    assert ask(server, "GET", "/metrics", accept_encoding="gzip")[0] == "gzip"


def test_answers_in_parts_are_not_compressed(serve: Serve) -> None:
    server = serve("flowing.py")
    with server.client() as client:
        headers = {"content-type": JSON, "accept": "text/event-stream", "accept-encoding": "gzip"}
        reply = client.request("POST", "/steps", b'{"parts": 100, "letters": 10000}', headers)
    assert "content-encoding" not in reply.headers
    assert reply.body.count(b"xxxx") > 100
