"""HTTPS: HTTP/1.1 and HTTP/2, streams, certificates that change, and clients that speak something else."""

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from harness import Serve, Server, until
from test_hangup import hang_up
from test_log import UnixConnection
from test_slow_readers import LINES


class Pair:
    """A certificate of 127.0.0.1 that signs itself, and its key."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
            f" -addext subjectAltName=IP:127.0.0.1 -keyout {self.key} -out {self.cert}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)

    def put(self, cert: Path, key: Path) -> None:
        shutil.copy(self.cert, cert)
        shutil.copy(self.key, key)

    def trusted(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.cert))
        context.set_alpn_protocols(list(protocols))
        return context


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, "first")


def protected(serve: Serve, tmp_path: Path, pair: Pair, *arguments: str, target: str = "sleepy.py") -> Server:
    """Start a server with HTTPS, whose files are `cert` and `key`."""
    cert, key = tmp_path / "cert", tmp_path / "key"
    pair.put(cert, key)
    plain = f"unix:{tmp_path}/plain"
    server = serve(
        target, arguments=("--tls-cert", str(cert), "--tls-key", str(key), "--listen", plain, *arguments), wait=False
    )
    with closing(UnixConnection(str(tmp_path / "plain"))) as probe:

        def is_ready() -> bool:
            try:
                probe.request("GET", "/readyz")
                return probe.getresponse().read().find(b'"ready": true') > 0
            except OSError:
                probe.close()
                return False

        until(is_ready, f"it is ready on its Unix socket, without TLS:\n{server.log()}")
    return server


def connect(server: Server, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context)


def call(connection: http.client.HTTPSConnection, body: str = '"ab"') -> tuple[int, bytes]:
    connection.request("POST", "/sleepy", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(serve: Serve, tmp_path: Path, pair: Pair, version: ssl.TLSVersion) -> None:
    server = protected(serve, tmp_path, pair)
    context = pair.trusted("http/1.1")
    context.minimum_version = context.maximum_version = version
    with closing(connect(server, context)) as connection:
        for _ in range(3):
            assert call(connection) == (200, b'"ba"')
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.sock.selected_alpn_protocol() == "http/1.1"
        large = "x" * 500_000
        assert call(connection, f'"{large}"')[1] == f'"{large}"'.encode()
    assert f"listening on https://127.0.0.1:{server.port}" in server.log()


def test_http2_is_agreed_on(serve: Serve, tmp_path: Path, pair: Pair) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    server = protected(serve, tmp_path, pair)
    command = [
        curl,
        "--silent",
        "--cacert",
        str(pair.cert),
        "--http2",
        "--write-out",
        "%{http_version} %{http_code}\\n",
    ]
    url = f"https://127.0.0.1:{server.port}/livez"
    said = subprocess.run([*command, url, url], capture_output=True, text=True, check=True, timeout=30).stdout
    assert said.split() == ["ok", "2", "200", "ok", "2", "200"]


def wanting(parts: int) -> tuple[str, dict[str, str]]:
    return json.dumps({"parts": parts, "letters": 10_000}), {"content-type": "application/json", "accept": LINES}


def outcomes(tmp_path: Path) -> dict[str, int]:
    """Return how many streams ended with each outcome."""
    with closing(UnixConnection(str(tmp_path / "plain"))) as probe:
        probe.request("GET", "/metrics")
        text = probe.getresponse().read().decode()
    found = re.findall(r'jitney_streams_total\{deployment="steps",outcome="(\w+)"\} (\d+)', text)
    return {name: int(count) for name, count in found if count != "0"}


def test_parts_come_one_by_one_and_a_client_that_leaves_ends_them(serve: Serve, tmp_path: Path, pair: Pair) -> None:
    server = protected(serve, tmp_path, pair, target="flowing.py")
    with closing(connect(server, pair.trusted("http/1.1"))) as connection:
        connection.request("POST", "/steps", *wanting(1_000_000_000))
        answer = connection.getresponse()
        numbers = [json.loads(answer.readline())["part"]["number"] for _ in range(100)]
        assert numbers == list(range(100))
        answer.close()
    until(lambda: outcomes(tmp_path) == {"cancelled": 1}, "the model does not go on for a client that has left")


def test_a_client_that_reads_nothing_is_left(serve: Serve, tmp_path: Path, pair: Pair) -> None:
    server = protected(serve, tmp_path, pair, "--body-timeout-s", "0.5", target="flowing.py")
    with closing(connect(server, pair.trusted("http/1.1"))) as connection:
        connection.request("POST", "/steps", *wanting(1_000_000_000))
        until(lambda: outcomes(tmp_path) == {"too_slow": 1}, "its stream ends")


def test_a_changed_certificate_is_for_new_connections_and_ends_no_open_one(
    serve: Serve, tmp_path: Path, pair: Pair
) -> None:
    server = protected(serve, tmp_path, pair)
    second = Pair(tmp_path, "second")
    with closing(connect(server, pair.trusted())) as old, closing(connect(server, second.trusted())) as new:
        assert call(old)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            call(new)
        new.close()
        # Half of a change: nothing happens.
        shutil.copy(second.cert, tmp_path / "cert")
        hang_up(server, "is not the key of the first certificate", "it stays as it was")
        assert call(old)[0] == 200
        second.put(tmp_path / "cert", tmp_path / "key")
        hang_up(server, "the certificates in")
        assert call(new)[0] == 200
        assert call(old)[0] == 200, "it is the connection of before"


def test_a_client_that_speaks_plain_http_learns_why(serve: Serve, tmp_path: Path, pair: Pair) -> None:
    server = protected(serve, tmp_path, pair)
    reply = server.get("/livez")
    assert (reply.status, b"call https://" in reply.body) == (400, True)
    # Garbage and silence end neither the server nor another connection.
    with socket.create_connection(("127.0.0.1", server.port)) as garbage:
        garbage.sendall(b"\x16\x03\x01\x00\x05hello")
    with closing(connect(server, pair.trusted())) as connection:
        assert call(connection)[0] == 200


def test_a_silent_client_is_left_after_the_time_of_a_header(serve: Serve, tmp_path: Path, pair: Pair) -> None:
    server = protected(serve, tmp_path, pair, "--header-timeout-s", "0.2")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tls-cert", "CERT"], "tls_cert needs tls_key"),
        (["--tls-key", "KEY"], "tls_key needs tls_cert"),
        (["--tls-cert", "CERT", "--tls-key", "OTHER"], "is not the key of the first certificate"),
        (["--tls-cert", "KEY", "--tls-key", "KEY"], "has no certificate"),
        (["--tls-cert", "CERT", "--tls-key", "missing.key"], "missing.key cannot be read"),
    ],
)
def test_files_of_no_use_end_the_start(
    serve: Serve, tmp_path: Path, pair: Pair, arguments: list[str], words: str
) -> None:
    other = Pair(tmp_path, "other")
    files = {"CERT": str(pair.cert), "KEY": str(pair.key), "OTHER": str(other.key)}
    server = serve("noop.py", arguments=tuple(files.get(word, word) for word in arguments), wait=False)
    assert server.wait_exit() == 1
    assert words in server.log()
