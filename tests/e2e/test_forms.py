"""multipart/form-data, as browsers and clients send it: parts become fields, files become bytes, images or arrays."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import jitney
import msgspec
import numpy as np
import pytest
from harness import APPS, Server, serving
from PIL import Image


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "parcels.py") as server:
        yield server


def send(server: Server, route: str, files: Any, data: dict[str, Any] | None = None) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{server.port}/{route}", data=data or {}, files=files, timeout=30)


def npy(values: list[float]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, np.float32))
    return file.getvalue()


def test_parts_become_fields_of_their_types(server: Server) -> None:
    data = {"name": "7", "count": "3", "weight": "2.5", "is_fragile": "true", "tags": ["a", "1"], "note": "null"}
    answer = send(server, "parcels", {"data": ("x.bin", b"\x00\xff")}, data)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "name": "7",
        "data": [0, 255],
        "count": 3,
        "weight": 2.5,
        "is_fragile": True,
        "tags": ["a", "1"],
        "note": "null",
        "sizes": None,
        "words": "",
    }
    # Where a list is one of several things, too: numbers as such, and a text alone is a text.
    answer = send(server, "parcels", {"data": (None, b"abc")}, {"name": "n", "sizes": "3", "words": "hello"})
    assert (answer.status_code, answer.json()["sizes"], answer.json()["words"]) == (200, [3], "hello"), answer.text
    answer = send(server, "parcels", {"data": (None, b"abc")}, {"name": "n", "sizes": ["3", "4"], "words": ["1", "2"]})
    assert (answer.status_code, answer.json()["sizes"], answer.json()["words"]) == (200, [3, 4], [1, 2]), answer.text
    # A file of text is bytes where bytes are meant; one tag is a list of one; a part may be JSON by its own word.
    files = {"data": ("x.txt", b"abc"), "tags": (None, b'["x", "y"]', "application/json"), "name": (None, b"n")}
    answer = send(server, "parcels", files)
    assert (answer.status_code, answer.json()["tags"], answer.json()["data"]) == (200, ["x", "y"], [97, 98, 99])
    answer = send(server, "parcels", {"data": (None, b"abc")}, {"name": "n", "tags": "only"})
    assert (answer.json()["tags"], answer.json()["data"]) == (["only"], [97, 98, 99])
    answer = send(server, "letters", {"to": (None, b"5")}, {"pages": ["1", "2"]})
    assert answer.json() == {"to": "5", "pages": [1, 2]}


def test_a_file_of_a_field_that_is_not_known_is_bytes_whatever_is_in_it(server: Server) -> None:
    for content in (b"text", b"[1]", b"\x00\xff"):
        for kind in ("text/plain", "application/octet-stream"):
            answer = send(server, "kinds", {"image": ("x", content, kind)}, {"note": "a"})
            assert answer.json() == {"image": "bytes", "note": "str"}, content
        assert send(server, "papers", {"image": ("x", content)}, {"type": "scan"}).json() == len(content)
    assert send(server, "papers", {"text": (None, b"5")}, {"type": "memo"}).json() == "5"
    # Known to be text, it may be a file all the same.
    assert send(server, "letters", {"to": ("x.txt", b"5")}).json()["to"] == "5"


def test_bytes_of_a_pydantic_model_are_the_same_by_every_door(server: Server) -> None:
    raw, sent = b"\xfb\xff", {"image": "+/8=", "seal": "+/8="}
    out = {"image": "+///", "seal": "+/8="}
    form = send(server, "photos", {"image": ("x.bin", raw), "seal": ("y.bin", raw)})
    assert (form.status_code, form.json()) == (200, out)
    url = f"http://127.0.0.1:{server.port}/photos"
    assert httpx.post(url, json=sent).json() == out
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    answer = httpx.post(url, content=msgspec.msgpack.encode({"image": raw, "seal": raw}), headers=headers)
    assert msgspec.msgpack.decode(answer.content) == {"image": raw + b"\xff", "seal": raw}
    with jitney.run_sync(str(APPS / "parcels.py")) as models:
        assert models.photos({"image": raw, "seal": raw}) == {"image": raw + b"\xff", "seal": raw}


def test_what_does_not_fit_is_named_by_its_field(server: Server) -> None:
    for data, field in [({"name": "n", "count": "many"}, "$.count"), ({"count": "1"}, "`name`")]:
        answer = send(server, "parcels", {"data": ("x", b"")}, data)
        assert (answer.status_code, answer.json()["reason"]) == (422, "invalid_input")
        assert field in answer.json()["detail"]


def test_a_file_is_the_item_where_the_item_is_one(server: Server) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (5, 3)).save(picture, "PNG")
    assert send(server, "sizes", {"file": ("x.png", picture.getvalue(), "image/png")}).json() == [5, 3]
    assert send(server, "lengths", {"file": ("x.bin", b"\x00" * 100_000)}).json() == 100_000
    assert send(server, "shout", {"text": (None, "grüß".encode())}).json() == "GRÜSS"
    sums = send(server, "add", {"right": ("r.npy", npy([3, 4])), "left": ("l.npy", npy([1, 2]))})
    assert sums.json() == [4, 6]


@pytest.mark.parametrize(
    ("route", "body", "status", "says"),
    [
        ("parcels", b"", 400, "form"),
        (
            "parcels",
            b"--x\r\ncontent-disposition: form-data; name=a\r\n\r\nb",
            400,
            "form",
        ),
        ("parcels", b"--x\r\na: b\r\n\r\nb\r\n--x--\r\n", 400, "no name"),
        ("lengths", b"--x--\r\n", 422, "one part"),
        ("add", b"--x--\r\n", 422, "left, right"),
        (
            "parcels",
            b"--x\r\ncontent-disposition: form-data; name=a\r\n\r\nb\r\n" * 2000 + b"--x--\r\n",
            413,
            "1024 parts",
        ),
        ("shout/batch", b"--x--\r\n", 415, "application/json"),
    ],
)
def test_broken_forms_are_told_what_is_wrong(server: Server, route: str, body: bytes, status: int, says: str) -> None:
    with server.client() as client:
        answer = client.request("POST", f"/{route}", body, {"content-type": "multipart/form-data; boundary=x"})
        assert answer.status == status, answer
        assert says in answer.json()["detail"], answer
        assert client.post("/shout", "x").json() == "X"


def test_a_form_without_its_boundary_cannot_be_read(server: Server) -> None:
    with server.client() as client:
        answer = client.request("POST", "/parcels", b"--x--\r\n", {"content-type": "multipart/form-data"})
        assert (answer.status, answer.reason) == (400, "malformed_body")
        assert "boundary" in answer.json()["detail"]
