"""`jitney.Response` over HTTP, the other protocols and programs."""

import base64
from pathlib import Path

import jitney
from harness import Serve


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


def test_protocols_without_headers_carry_the_content(serve: Serve, tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/models"
    server = serve("responding.py", arguments=("--listen-programs", place))
    many = server.post("/responding/batch", ["json", "teal"])
    document, page = [outcome["value"] for outcome in many.json()["outcomes"]]
    assert (document, base64.b64decode(page)) == ({"text": "json"}, b"<b>teal</b>")
    assert "x-shade" not in many.headers
    tensor = {"name": "texts", "datatype": "BYTES", "shape": [1], "data": ["json"]}
    answer = server.post("/v2/models/responding/infer", {"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == ['{"text":"json"}']
    with jitney.connect_sync(place) as models:
        assert models.responding("teal") == jitney.Response(b"<b>teal</b>", "text/html; charset=utf-8")
        assert models.responding("json") == {"text": "json"}
