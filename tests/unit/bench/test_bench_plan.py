"""The options of `jitney bench`: loads, inputs and protocols, and what is refused."""

import io
import json
import re
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jitney.cli.main import main
from jitney.errors import ConfigError
from jitney_bench.options import Closed, Open, Run, load_of, think
from jitney_bench.requests import inputs, protocols
from jitney_bench.requests.inputs import Item, of_documents
from jitney_bench.requests.protocols import Model
from jitney_bench.server.address import Address, ServerError
from jitney_bench.server.child import Child
from jitney_bench.server.site import read_metrics
from jitney_bench.subject import Wanted, read_key

NOTHING: dict[str, Any] = dict.fromkeys(("users", "ramp", "think", "rate", "arrivals", "burst", "connections"))


def test_without_a_rate_there_are_users() -> None:
    assert load_of(NOTHING) == Closed(32, 0.0, (0.0, 0.0))
    assert load_of(NOTHING | {"users": 3, "ramp": 9.0, "think": (1.0, 2.0)}) == Closed(3, 9.0, (1.0, 2.0))


def test_with_a_rate_there_is_a_schedule() -> None:
    assert load_of(NOTHING | {"rate": 50.0}) == Open(50.0, "poisson", 1, 1000)
    assert load_of(NOTHING | {"rate": 50.0, "arrivals": "bursts"}) == Open(50.0, "bursts", 10, 1000)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 5.0, "users": 3}, "--users makes no sense.*--rate 5"),
        ({"rate": 5.0, "think": (1.0, 1.0)}, "--think makes no sense"),
        ({"arrivals": "poisson"}, "--arrivals makes no sense.*add --rate"),
        ({"rate": 5.0, "burst": 3}, "--burst 3 makes no sense.*--arrivals bursts"),
    ],
)
def test_options_of_the_other_loop_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_of(NOTHING | given)


def test_a_time_to_think_is_one_or_a_range() -> None:
    assert think("0.5") == (0.5, 0.5)
    assert think("0.5..2") == (0.5, 2.0)
    assert think("1..1") == (1.0, 1.0)


def test_a_short_run_has_intervals_too() -> None:
    assert Run(Closed(), duration_s=1.0).to_dict()["interval_s"] == 0.05
    assert Run(Closed(), duration_s=600.0).to_dict()["interval_s"] == 1.0
    assert Run(Closed(), duration_s=0.01).to_dict()["interval_s"] == 0.01


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say what to measure"),
        (["http://x:1/y", "--users", "0"], "from 1 to 1,000,000, not '0'"),
        (["http://x:1/y", "--duration", "-3"], "not '-3'"),
        (["http://x:1/y", "--rate", "fast"], "not 'fast'"),
        (["http://x:1/y", "--items", "5"], "--protocol batch"),
        (["http://x:1/y", "--content-type", "a/b"], "--input"),
        (["http://x:1/y", "--stream", "--protocol", "oip"], "say --protocol native, chat, completion"),
        (["http://x:1/y", "--items", "5", "--protocol", "chat"], "the protocol chat takes one item per request"),
        (["http://x:1/y", "--set", "a.replicas=2"], "runs already"),
        (["https://x:1/y"], "only http://"),
        (["http://x:1/y", "--header", "nonsense"], "NAME: VALUE"),
        (["http://x:1/y", "--user", "3"], "did you mean '--users'"),
        (["http://x:1/y", "--think", "2..1"], "the smaller one first, not '2..1'"),
        (["127.0.0.1:8000/padded"], "did you mean http://127.0.0.1:8000/padded?"),
        (["localhost:8000"], "did you mean http://localhost:8000?"),
        (["[::1]:8000/a"], "did you mean http://[::1]:8000/a?"),
        (["no_such_file.py"], "there is no file"),
        (["http://x:1/y", "--json", "no/such/folder/out.json"], "no/such/folder/out.json cannot be written"),
        (["http://x:1/y", "--sweep", "--repeat", "3"], "--repeat 3 makes no sense with --sweep"),
        (["http://x:1/y", "--header", "x: a\r\nEvil: 1"], "--header 'x: a\\r\\nEvil: 1' holds what HTTP does not"),
        (["http://x:1/y", "--header", "a b: c"], "--header 'a b: c' holds what HTTP does not"),
        (["http://x:1/y", "--timeout", "1e300"], "and 86400 at most, not '1e300'"),
        (["http://x:1/y", "--interval", "1e-9"], "--interval 1e-09 is too short for --duration 10: say 0.001 or more"),
        (["http://x:1/y", "--interval", "0.1", "--duration", "86400"], "say 0.864 or more"),
        (["--compare", "a.json"], "expected 2 arguments"),
        (["--compare", "a.json", "b.json", "--users", "3"], "measures nothing; leave --users away"),
        (["http://x:1/y", "--users", "3", "--threads", "4"], "--threads 4 is more than there are users (3 users)"),
        (
            ["http://x:1/y", "--users", "9", "--ramp", "60"],
            "--ramp 60 is longer than the run (2 s of warm-up and 10 s)",
        ),
        (["http://x:1/y", "--sweep", "--ramp", "10"], "--ramp 10 is longer than the run (1 s of warm-up and 3 s)"),
        (["http://x:1/y", "--rate", "inf"], "10,000,000 at most, not 'inf'"),
        (["http://x:0/y"], "no server listens at port 0"),
        (["http://x:1/y", "--header", "content-type: a/b"], "say --content-type"),
        (["http://x:1/y", "--header", "Content-Length: 5"], "content-length follows from what is sent"),
        (["http://x:1/y", "--key-file", "nowhere"], "nowhere"),
    ],
)
def test_what_makes_no_sense_is_named(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sesame\n")
    key = read_key(str(tmp_path / "key"), None)
    assert key == "sesame"
    assert "sesame" not in repr(Wanted("http://x", headers=[("authorization", f"Bearer {key}")]))
    (tmp_path / "key").write_text("open sesame\n")
    with pytest.raises(ConfigError, match="2 words") as raised:
        read_key(str(tmp_path / "key"), None)
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("key", ["open\nsesame", "s\xe9same"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="JITNEY_CLIENT_KEY holds") as raised:
        read_key(None, key)
    assert key not in str(raised.value)
    (tmp_path / "key").write_text(key)
    with pytest.raises(ConfigError, match="--key-file"):
        read_key(str(tmp_path / "key"), None)


def test_addresses_are_taken_apart() -> None:
    address = Address.parse("http://[::1]:9000/a/b?c=d", [])
    assert (address.host, address.port, address.path, address.url) == ("::1", 9000, "/a/b?c=d", "http://[::1]:9000")
    assert Address.parse("http://host", []).port == 80


def test_lines_are_items(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"a": 1}\n\n"two"\n')
    assert inputs.read(str(tmp_path / "items.jsonl"), None) == [
        Item("application/json", b'{"a": 1}'),
        Item("application/json", b'"two"'),
    ]
    (tmp_path / "items.jsonl").write_bytes(b"\xef\xbb\xbf1\r\n2\r\n")
    assert [item.body for item in inputs.read(str(tmp_path / "items.jsonl"), None)] == [b"1", b"2"]
    (tmp_path / "texts.txt").write_text("one text\nanother\n")
    assert inputs.read(str(tmp_path / "texts.txt"), None) == [
        Item("text/plain", b"one text"),
        Item("text/plain", b"another"),
    ]


def test_files_are_items_of_the_type_of_their_name(tmp_path: Path) -> None:
    for name in (".DS_Store", "b.png", "a.jpg", "c.npy", "d.unknown"):
        (tmp_path / name).write_bytes(name.encode())
    found = inputs.read(str(tmp_path), None)
    assert [item.content_type for item in found] == [
        "image/jpeg",
        "image/png",
        "application/x-npy",
        "application/octet-stream",
    ]
    assert inputs.read(str(tmp_path / "b.png"), "x/y") == [Item("x/y", b"b.png")]


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", "{1}\n"), ("a.jsonl", "\n"), ("a.txt", ""), (".", "")])
def test_inputs_that_are_none_are_named(name: str, text: str, tmp_path: Path) -> None:
    if name != ".":
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match="--input"):
        inputs.read(str(tmp_path / name), None)


@pytest.mark.parametrize(
    ("kind", "body"), [("text/plain", b"\xff"), ("application/json", b"{"), ("application/x-npy", b"")]
)
def test_an_item_that_is_not_what_its_type_says_is_named(kind: str, body: bytes) -> None:
    with pytest.raises(ConfigError, match=f"an item of type '{kind}' cannot be read"):
        Item(kind, body).document()


def test_an_input_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(5, "Input/output error", str(path))

    (tmp_path / "a.bin").write_bytes(b"x")
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ConfigError, match=r"--input .*a\.bin cannot be read: .*Input/output error"):
        inputs.read(str(tmp_path / "a.bin"), None)


def test_the_native_protocol_sends_items_as_they_are() -> None:
    requests = protocols.native(Model("m"), [Item("image/png", b"x")], 1)
    assert (requests.path, requests.bodies) == ("/m", [("image/png", b"x")])


def test_many_items_ride_in_one_request_and_all_are_used() -> None:
    requests = protocols.batch(Model("m"), of_documents(["a", "b", "c"]), 2)
    assert requests.path == "/m/batch"
    assert [json.loads(body) for _, body in requests.bodies] == [["a", "b"], ["c", "a"]]


def test_embeddings_are_asked_for_as_clients_of_the_api_do() -> None:
    (one,) = protocols.openai(Model("m"), of_documents(["a"]), 1).bodies
    assert json.loads(one[1]) == {"model": "m", "input": "a"}
    (two,) = protocols.openai(Model("m"), [Item("text/plain", b"a"), Item("text/plain", b"b")], 2).bodies
    assert json.loads(two[1]) == {"model": "m", "input": ["a", "b"]}
    (struct,) = protocols.openai(Model("m"), of_documents([{"input": [1, 2], "dimensions": 3}]), 1).bodies
    assert json.loads(struct[1]) == {"model": "m", "input": [1, 2], "dimensions": 3}


def test_chats_and_prompts_are_sent_as_clients_of_the_api_do() -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    requests = protocols.chat(Model("m"), of_documents(["hi", chat | {"max_tokens": 5}]), 1)
    assert requests.path == "/v1/chat/completions"
    assert [json.loads(body) for _, body in requests.bodies] == [
        {"model": "m"} | chat,
        {"model": "m", "max_tokens": 5} | chat,
    ]
    (prompt,) = protocols.completion(Model("m"), of_documents(["hi"]), 1).bodies
    assert json.loads(prompt[1]) == {"model": "m", "prompt": "hi"}
    with pytest.raises(ConfigError, match="neither a text nor an object"):
        protocols.chat(Model("m"), of_documents([5]), 1)


def test_answers_in_parts_are_asked_for_by_a_header_or_in_the_body() -> None:
    items = of_documents(["hi"])
    native = protocols.streamed(protocols.native(Model("m"), items, 1), "native", has_accept=False)
    assert (native.stream, native.headers) == ("native", (("accept", "text/event-stream"),))
    assert protocols.streamed(native, "native", has_accept=True).headers == native.headers
    chat = protocols.streamed(protocols.chat(Model("m"), items, 1), "chat", has_accept=False)
    (body,) = (json.loads(body) for _, body in chat.bodies)
    assert chat.stream == "openai"
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_tensors_have_the_batch_first() -> None:
    one = Model("m", [{"name": "x", "datatype": "FP32"}])
    (body,) = protocols.oip(one, of_documents([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), 2).bodies
    assert json.loads(body[1])["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [2, 2, 2], "data": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}
    ]
    fields = Model("m", [{"name": "text", "datatype": "BYTES"}, {"name": "width", "datatype": "INT64"}])
    (body,) = protocols.oip(fields, of_documents([{"text": "a"}]), 1).bodies
    assert json.loads(body[1])["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]


def test_bytes_follow_the_json_of_tensors_as_they_are() -> None:
    model = Model(
        "m", [{"name": "raw", "datatype": "BYTES"}, {"name": "n", "datatype": "INT64"}], octets=frozenset({"raw"})
    )
    items = of_documents([{"raw": "iXg=", "n": 1}, {"raw": "eQ==", "n": 10}, {"raw": "", "n": 2}])
    requests = protocols.oip(model, items, 2)
    ((_, width),) = requests.headers
    (first, second) = requests.bodies
    assert {kind for kind, _ in requests.bodies} == {"application/octet-stream"}
    assert first[1][int(width) :] == b"\x02\0\0\0\x89x\x01\0\0\0y"
    assert second[1][int(width) :] == b"\0\0\0\0\x02\0\0\0\x89x"
    assert json.loads(first[1][: int(width)])["inputs"] == [
        {"name": "raw", "datatype": "BYTES", "shape": [2, 1], "parameters": {"binary_data_size": 11}},
        {"name": "n", "datatype": "INT64", "shape": [2, 1], "data": [1, 10]},
    ]
    with pytest.raises(ConfigError, match="'raw' takes bytes, but an item has no base64 for it"):
        protocols.oip(model, of_documents([{"raw": "no!", "n": 1}]), 1)


def test_bytes_and_images_are_base64_in_a_document_and_arrays_are_lists() -> None:
    array = io.BytesIO()
    np.save(array, np.array([[1, 2], [3, 4]], np.float32))
    sent = [
        Item("image/png", b"\x89x"),
        Item("application/octet-stream", b"y"),
        Item("application/x-npy", array.getvalue()),
    ]
    (body,) = protocols.batch(Model("m"), sent, 3).bodies
    assert json.loads(body[1]) == ["iXg=", "eQ==", [[1.0, 2.0], [3.0, 4.0]]]


def test_what_is_not_turned_into_json_is_named() -> None:
    with pytest.raises(ConfigError, match=r"application/msgpack.*--protocol native"):
        protocols.batch(Model("m"), [Item("application/msgpack", b"x")], 2)
    with pytest.raises(ConfigError, match=r"application/x-npy.*cannot be read"):
        protocols.batch(Model("m"), [Item("application/x-npy", b"x")], 2)


def test_metrics_of_other_deployments_are_left_alone() -> None:
    text = '# HELP x y\na_total{deployment="m",reason="full"} 3\na_total{deployment="n",reason="full"} 4\nb 5\n'
    assert read_metrics(text, "m") == {'a_total{reason="full"}': 3.0}


def test_a_server_that_is_started_says_where_it_listens_whatever_its_log_is_set_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "jitney.toml"
    config.write_text('[server]\nlog_level = "error"\n')
    (tmp_path / "m.py").write_text(
        "import jitney\n@jitney.deployment\ndef m(texts: list[str]) -> list[str]:\n    return texts\n"
    )
    monkeypatch.setenv("JITNEY_SERVER__LOG_LEVEL", "warn")
    monkeypatch.setattr("jitney_bench.server.child.START_S", 30.0)
    with Child(str(tmp_path / "m.py"), ["--config", str(config), "--max-batch-size", "7"]) as child:
        address = child.wait_ready(())
        assert json.loads(address.request("GET", "/config")[1])["deployments"]["m"]["options"]["max_batch_size"] == 7


@contextmanager
def answering(parts: Iterable[bytes]) -> Generator[Address]:
    """A server that sends these to the first who asks, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connected = listener.accept()[0]
            try:
                connected.recv(65536)
                for part in parts:
                    connected.sendall(part)
                connected.shutdown(socket.SHUT_WR)
                connected.recv(65536)
            except OSError:  # who asked has had enough
                pass
            finally:
                connected.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        thread.join(20)
        assert not thread.is_alive()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [OK],
        [CHUNKS, b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\n", b"ok"],
        [
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n",
            b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK,
        ],
    ],
)
def test_the_final_answer_is_read(parts: list[bytes]) -> None:
    with answering(parts) as address:
        assert address.request("GET", "/") == (200, b"ok")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok"], "its answer to GET /x ended early"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\nok"], "its answer to GET /x ended early"),
        ([CHUNKS, b"5\r\nok"], "its answer to GET /x ended early"),
        ([CHUNKS, b"FFFFFFFFFFFFFFFF\r\nok"], "its answer to GET /x ended early"),
        ([CHUNKS, b"-5\r\nok"], "its answer not be read"),
        ([b"HTTP/1.1 103 Early\r\n\r\n"] * 200, "100 answers with status 1xx"),
        ([], "is the server there?"),
    ],
)
def test_an_answer_that_is_none_is_told(parts: list[bytes], told: str) -> None:
    with answering(parts) as address, pytest.raises(ServerError, match=re.escape(told)):
        address.request("GET", "/x")


def endless(pause_s: float, part: bytes) -> Iterator[bytes]:
    end = time.monotonic() + 15
    while time.monotonic() < end:
        time.sleep(pause_s)
        yield part


@pytest.mark.parametrize("head", [CHUNKS, b"HTTP/1.1 200 OK\r\n\r\n", CHUNKS + b"-1\r\n"])
def test_an_answer_without_end_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitney_bench.server.address.MOST_BYTES", 2**20)
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    with (
        answering(part for parts in ([head], endless(0, chunk)) for part in parts) as address,
        pytest.raises(ServerError, match="an answer of more than 1 MiB"),
    ):
        address.request("GET", "/")


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_drips_is_given_up(start: bytes) -> None:
    began = time.monotonic()
    with (
        answering(part for parts in ([start], endless(0.05, b"x")) for part in parts) as address,
        pytest.raises(ServerError, match=r"was not done with its answer after 0\.3 s"),
    ):
        address.request("GET", "/", timeout_s=0.3)
    assert time.monotonic() - began < 5


def test_a_header_that_makes_it_refuse_is_told_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitney_bench.server.child.START_S", 20.0)
    (tmp_path / "m.py").write_text(
        "import jitney\n@jitney.deployment\ndef m(texts: list[str]) -> list[str]:\n    return texts\n"
    )
    assert main(["bench", str(tmp_path / "m.py"), "--header", "host: evil"]) == 2
    assert "/openapi.json is answered with 421" in capsys.readouterr().err
