"""nginx with the configuration of `deploy/proxies`: streams come part by part, and clients that leave are noticed."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from containers import free_port
from harness import Server, serving, until
from test_https import Pair, wanting
from test_proxies import FOR_OPERATORS
from tools import DEPLOY, need, run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "flowing.py") as started:
        yield started


@pytest.fixture
def proxy(server: Server, tmp_path: Path) -> Iterator[HTTPSConnection]:
    """A connection to nginx, in front of the server."""
    need("nginx")
    pair, port = Pair(tmp_path, "proxy"), free_port()
    text = (DEPLOY / "proxies/nginx.conf").read_text()
    for there, here in [
        ("listen 443 ssl http2;", f"listen 127.0.0.1:{port} ssl http2;"),
        ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ("/etc/nginx/tls/tls.crt", str(pair.cert)),
        ("/etc/nginx/tls/tls.key", str(pair.key)),
    ]:
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\ndaemon off;\nerror_log stderr;\n{text}")
    command = ["nginx", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
    assert "[warn]" not in run(*command, "-t").stderr
    process = subprocess.Popen(command)
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=pair.trusted("http/1.1"))

    def is_there() -> bool:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().read() != b""
        except OSError:
            connection.close()
            return False

    try:
        until(is_there, "nginx answers for the server")
        yield connection
    finally:
        connection.close()
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def streams(server: Server) -> dict[str, int]:
    text = server.get("/metrics").body.decode()
    found = re.findall(r'jitney_streams_total\{deployment="steps",outcome="(\w+)"\} (\d+)', text)
    return {name: int(count) for name, count in found if count != "0"}


def test_parts_come_one_by_one_and_a_client_that_leaves_is_noticed(proxy: HTTPSConnection, server: Server) -> None:
    with closing(proxy):
        proxy.request("POST", "/steps", *wanting(1_000_000_000))
        answer = proxy.getresponse()
        assert answer.status == 200
        assert [json.loads(answer.readline())["part"]["number"] for _ in range(100)] == [*range(100)]
        answer.close()
    until(lambda: streams(server) == {"cancelled": 1}, f"the request has ended: {streams(server)}")


def test_whole_answers_and_open_pages_pass(proxy: HTTPSConnection) -> None:
    proxy.request("POST", "/steps", json.dumps({"parts": 3, "letters": 2}), {"content-type": "application/json"})
    answer = proxy.getresponse()
    assert answer.status == 200 and len(json.loads(answer.read())) == 3
    assert answer.headers["x-request-id"]
    for path in ("/livez", "/readyz", "/docs", "/openapi.json"):
        proxy.request("GET", path)
        answer = proxy.getresponse()
        answer.read()
        assert answer.status == 200, path


@pytest.mark.parametrize("path", [*FOR_OPERATORS, "/metrics?a=1", "/%6detrics", "/live%2Fevents", "/steps/../config"])
def test_pages_for_operators_are_not_published(path: str, proxy: HTTPSConnection) -> None:
    proxy.request("GET", path)
    answer = proxy.getresponse()
    assert (answer.status, b"<center>nginx" in answer.read()) == (404, True), "nginx itself answers"
