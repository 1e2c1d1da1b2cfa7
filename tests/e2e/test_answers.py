"""What a client sees of a healthy server: answers in the type it asks for, and what comes with each."""

import io
import json
import shutil
import subprocess
from typing import Any

import msgspec
import numpy as np
import prometheus_client.openmetrics.parser
import pytest
from harness import JSON, MSGPACK, NPY, Client, Serve

TEXT = "text/plain; charset=utf-8"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def from_npy(body: bytes) -> np.ndarray:
    return np.load(io.BytesIO(body), allow_pickle=False)


def test_answers_in_the_type_that_was_asked_for(serve: Serve) -> None:
    server = serve("noop.py")
    with server.client() as client:
        item = {"text": "grüße", "n": [1, 2.5, None, True]}
        assert client.post("/noop", item).json() == item
        packed = client.post("/noop", msgspec.msgpack.encode(item), {"content-type": MSGPACK, "accept": MSGPACK})
        assert packed.headers["content-type"] == MSGPACK
        assert msgspec.msgpack.decode(packed.body) == item
        assert client.post("/shout", "grüße").json() == "GRÜSSE"
        plain = client.post("/shout", "grüße".encode(), {"content-type": TEXT, "accept": "text/plain"})
        assert plain.headers["content-type"].startswith("text/plain")
        assert plain.body.decode() == "GRÜSSE"
        raw = client.post("/mirror", b"\x00\x01\xff", {"content-type": "application/octet-stream"})
        assert raw.body == b"\xff\x01\x00"
        assert int(raw.headers["content-length"]) == 3


def test_arrays_come_and_go_as_json_and_npy(serve: Serve) -> None:
    server = serve("arrays.py")
    with server.client() as client:
        assert client.post("/double", [1.0, 2.5]).json() == [2.0, 5.0]
        answer = client.post("/double", npy(np.ones((3, 2), np.float32)), {"content-type": NPY, "accept": NPY})
        assert answer.headers["content-type"] == NPY
        array = from_npy(answer.body)
        assert array.dtype == np.float32
        assert array.tolist() == [[2.0, 2.0]] * 3
        refused = client.post("/double", npy(np.ones(3, np.float64)), {"content-type": NPY})
        assert refused.status == 422
        assert refused.reason == "invalid_input"
        assert "float64" in refused.json()["detail"]
        image = np.arange(16).reshape(4, 4).tolist()
        mask = (np.arange(16).reshape(4, 4) % 2 == 0).tolist()
        assert client.post("/score", {"image": image, "mask": mask}).json() == {"total": 120, "masked": 56}


def test_an_image_is_one_plain_response(serve: Serve) -> None:
    image_module = pytest.importorskip("PIL.Image")
    server = serve("images.py")
    file = io.BytesIO()
    image_module.new("RGB", (8, 6), (255, 0, 10)).save(file, "PNG")
    answer = server.post("/invert", file.getvalue(), {"content-type": "image/png", "accept": "image/png"})
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "image/png"
    assert int(answer.headers["content-length"]) == len(answer.body)
    picture = image_module.open(io.BytesIO(answer.body))
    assert picture.size == (8, 6)
    assert picture.convert("RGB").getpixel((0, 0)) == (0, 255, 245)


def test_every_answer_says_its_id_its_times_and_its_batch(serve: Serve) -> None:
    server = serve("sleepy.py")
    answers = server.submit_held("/sleepy", [f"item-{n}" for n in range(9)])
    server.open_gate()
    replies = [answer.result() for answer in answers]
    assert [reply.batch_size for reply in replies] == [1] + [9] * 9
    assert len({reply.headers["x-request-id"] for reply in replies}) == 10
    for reply in replies:
        phases = {part.strip().split(";")[0] for part in reply.headers["server-timing"].split(",")}
        assert phases >= {"queue", "batch", "model"}
    assert server.post("/sleepy", "x", {"x-request-id": "mine-7"}).headers["x-request-id"] == "mine-7"
    refused = server.post("/nobody", "x", {"x-request-id": "mine-8"})
    assert (refused.status, refused.reason, refused.headers["x-request-id"]) == (404, "not_found", "mine-8")


WRONG: list[tuple[str, dict[str, str], bytes | None, int, str]] = [
    ("GET", {}, None, 405, "method_not_allowed"),
    ("POST", {"content-type": JSON}, b"{", 400, "malformed_body"),
    ("POST", {"content-type": JSON}, b"[1]", 422, "invalid_input"),
    ("POST", {"content-type": "application/x-unheard-of"}, b"{}", 415, "unsupported_media_type"),
    ("POST", {"content-type": JSON, "accept": "image/png"}, b"{}", 406, "not_acceptable"),
    ("POST", {"content-type": JSON, "x-priority": "urgent"}, b"{}", 400, "invalid_request"),
    ("POST", {"content-type": JSON, "x-request-timeout-ms": "soon"}, b"{}", 400, "invalid_request"),
]


def test_wrong_requests_are_told_what_is_wrong(serve: Serve) -> None:
    server = serve("noop.py")
    with server.client() as client:
        for method, headers, body, status, reason in WRONG:
            refused = client.request(method, "/noop", body, headers)
            assert (refused.status, refused.reason) == (status, reason), (headers, body)
            assert refused.json()["detail"]
            assert client.post("/noop", {"a": 1}).json() == {"a": 1}


def test_what_the_front_cannot_parse_is_told_what_it_may_be(serve: Serve) -> None:
    """Of these the front looks for the group; of others only the worker looks into them, and says the same."""
    server = serve("grouped.py", "noop.py")
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path in ("/grouped", "/noop"):
        refused = server.post(path, b"prompt=a&width=3", form)
        assert (refused.status, refused.reason) == (400, "malformed_body")
        hint = "this looks like a form, key=value: send JSON or multipart/form-data"
        assert hint in refused.json()["detail"], path
        assert refused.json()["detail"].endswith(CAME_AS_FORM), path


CAME_AS_FORM = (
    "; the content-type is application/x-www-form-urlencoded, a form, but the body was read as JSON; "
    "send JSON as application/json"
)


def test_a_form_where_json_is_read_is_called_a_form(serve: Serve) -> None:
    server = serve("embedders.py", "noop.py")
    form = {"content-type": "application/x-www-form-urlencoded"}
    multipart = {"content-type": "multipart/form-data; boundary=x"}
    for path in ("/noop", "/noop/batch", "/shout", "/v1/embeddings", "/v2/models/noop/infer"):
        refused = server.post(path, b"input=a", form)
        assert refused.status == 400 and CAME_AS_FORM in refused.body.decode(), path
        assert CAME_AS_FORM not in server.post(path, b"input=a", {"content-type": JSON}).body.decode(), path
        assert CAME_AS_FORM not in server.post(path, b"", form).body.decode(), path
    for path in ("/noop/batch", "/v1/embeddings", "/v2/models/noop/infer"):
        refused = server.post(path, b"--x--", multipart)
        assert refused.status == 415, path
        assert "content-type `multipart/form-data; boundary=x` is not taken here; send " in refused.body.decode()


def test_an_image_that_curl_sent_as_a_form_is_led_to_data_binary(serve: Serve) -> None:
    server = serve("images.py")
    form = {"content-type": "application/x-www-form-urlencoded"}
    refused = server.post("/invert", b"PNGIHDR", form)
    assert refused.status == 422
    hint = "application/x-www-form-urlencoded, a form; curl sends a file unchanged with --data-binary @FILE"
    assert refused.json()["detail"].endswith(hint)
    assert hint not in server.post("/invert", b"PNGIHDR", {"content-type": "image/png"}).json()["detail"]
    named = server.post("/invert", b'"cat.png"', {"content-type": JSON})
    assert "send the bytes of the file with content-type: image/*, or their base64" in named.json()["detail"]


def test_the_front_answers_for_itself(serve: Serve) -> None:
    server = serve("sleepy.py", "noop.py")
    answers = server.submit_held("/sleepy", ["a", "b"])  # the model is busy and the front must not care
    with server.client() as client:
        assert client.get("/livez").status == 200
        assert client.get("/readyz").status == 200
        document = client.get("/openapi.json").json()
        assert document["openapi"].startswith("3.")
        assert {"/sleepy", "/noop", "/shout", "/mirror"} <= set(document["paths"])
        assert "max_batch_size" in json.dumps(client.get("/config").json())
        assert client.get("/metrics").headers["content-type"].startswith("text/plain")
        asked = {"accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"}
        scraped = client.request("GET", "/metrics", headers=asked)
        assert scraped.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        parser: Any = prometheus_client.openmetrics.parser
        types = {family.name: family.type for family in parser.text_string_to_metric_families(scraped.body.decode())}
        assert types["jitney_requests"] == "counter"
    server.open_gate()
    assert all(answer.result().status == 200 for answer in answers)
    assert server.metric("jitney_requests_total", deployment="sleepy", outcome="ok") == 3
    assert server.metric("jitney_batches_total", deployment="sleepy") == 2
    assert server.metric("jitney_batch_items_sum", deployment="sleepy") == 3
    assert server.metric("jitney_ready_replicas", deployment="sleepy") == 1


def test_one_item_at_a_time_for_models_that_cannot_batch(serve: Serve) -> None:
    server = serve("unbatched.py")
    futures = [server.submit("/single", f"item-{n}") for n in range(20)]
    assert [future.result().json() for future in futures] == [f"item-{n}"[::-1] for n in range(20)]
    assert all(len(call.items) == 1 for call in server.calls())


def test_http2_without_encryption_on_the_same_port(serve: Serve) -> None:
    curl = shutil.which("curl")
    if curl is None or "HTTP2" not in subprocess.run([curl, "-V"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("needs a curl that speaks HTTP/2")
    server = serve("noop.py")
    command = [curl, "-sS", "--http2-prior-knowledge", "-w", " %{http_version}", "--json", '"hello"']
    url = f"http://127.0.0.1:{server.port}/shout"
    done = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == '"HELLO" 2'
    with Client(server.port) as client:
        assert client.post("/shout", "hello").json() == "HELLO"
