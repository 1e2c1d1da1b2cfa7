"""`jitney.Response` over HTTP, the other protocols and programs."""

import base64
from pathlib import Path

import jitney
import jitney.testing
import msgspec
from harness import APPS, Serve


def test_an_answer_has_its_media_type_and_its_headers(serve: Serve) -> None:
    server = serve("responding.py")
    page = server.post("/responding", "teal", {"x-request-id": "mine-1"})
    assert (page.status, page.body) == (200, b"<b>teal</b>")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert (page.headers["x-shade"], page.headers["x-request-id"]) == ("teal", "mine-1")
    document = server.post("/responding", "json")
    assert (document.json(), document.headers["content-type"]) == ({"text": "json"}, "application/json")
    assert document.headers["x-shade"] == "grey"
    assert server.post("/responding", "teal", {"accept": "text/html"}).body == b"<b>teal</b>"
    encoded = server.post("/responding", "teal", {"accept": "application/json"})
    assert base64.b64decode(encoded.json()) == b"<b>teal</b>"


PAGE = jitney.Response(b"<b>teal</b>", "text/html; charset=utf-8", {"x-shade": "teal"})
DOCUMENT = jitney.Response({"text": "json"}, None, {"x-shade": "grey"})


def test_each_outcome_of_many_has_its_media_type_and_headers(serve: Serve) -> None:
    server = serve("responding.py")
    expected = [
        {"value": {"text": "json"}, "headers": {"x-shade": "grey"}},
        {"value": "PGI+dGVhbDwvYj4=", "media_type": "text/html; charset=utf-8", "headers": {"x-shade": "teal"}},
    ]
    many = server.post("/responding/batch", ["json", "teal"])
    assert many.json()["outcomes"] == expected
    assert "x-shade" not in many.headers
    packed = server.post("/responding/batch", ["json", "teal"], {"accept": "application/msgpack"})
    outcomes = msgspec.msgpack.decode(packed.body)["outcomes"]
    assert outcomes == [expected[0], expected[1] | {"value": b"<b>teal</b>"}]


def test_the_open_inference_protocol_carries_the_content(serve: Serve) -> None:
    tensor = {"name": "texts", "datatype": "BYTES", "shape": [1], "data": ["json"]}
    answer = serve("responding.py").post("/v2/models/responding/infer", {"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == ['{"text":"json"}']
    assert "x-shade" not in answer.headers


def test_programs_get_a_response(serve: Serve, tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/models"
    serve("responding.py", arguments=("--listen-programs", place))
    app = str(APPS / "responding.py")
    for models in (jitney.connect_sync(place), jitney.run_sync(app), jitney.testing.inline(app)):
        with models as entered:
            assert entered.responding("teal") == PAGE
            assert entered.responding.many(["json", "teal"]) == [DOCUMENT, PAGE]


def test_the_model_reads_the_media_type_of_a_raw_body(serve: Serve) -> None:
    server = serve("sound.py")
    for media_type in ("audio/wav", "application/octet-stream"):
        answer = server.post("/sound", b"RIFF", {"content-type": media_type})
        assert answer.json() == f"4 bytes of {media_type}"
