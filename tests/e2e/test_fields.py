"""Images and arrays as fields of structs, on every protocol."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import httpx
import jitney
import msgspec
import numpy as np
import pytest
from files import npy, png, text
from harness import APPS, Serve, Server, serving
from PIL import Image

MASK = np.array([[1, 2], [3, 4]], np.uint8)
ANSWER = {"prompt": "tea", "size": [3, 2], "mask": [[2, 3], [4, 5]], "more": [], "points": []}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "pictures.py") as server:
        yield server


def url(server: Server, path: str) -> str:
    return f"http://127.0.0.1:{server.port}/{path}"


def test_json_has_base64_and_lists(server: Server) -> None:
    document = {"prompt": "tea", "photo": text(png(3, 2)), "mask": MASK.tolist()}
    assert httpx.post(url(server, "pictures"), json=document).json() == ANSWER
    points = {"more": [text(png(1, 1))] * 2, "points": [[1.5], [], [2, 3]]}
    answer = httpx.post(url(server, "pictures"), json=document | points | {"mask": text(npy(MASK))}).json()
    assert (answer["more"], answer["points"]) == ([[1, 1], [1, 1]], [[1.5], [], [2.0, 3.0]])


def test_msgpack_has_bytes(server: Server) -> None:
    for mask in (npy(MASK), MASK.tobytes(), {"dtype": "uint8", "shape": [2, 2], "data": MASK.tobytes()}):
        body = msgspec.msgpack.encode({"prompt": "tea", "photo": png(3, 2), "mask": mask})
        answer = httpx.post(url(server, "pictures"), content=body, headers={"content-type": "application/msgpack"})
        assert answer.json() == ANSWER


def test_a_form_has_files(server: Server) -> None:
    files: Any = [("photo", ("p.png", png(3, 2))), ("mask", ("m.npy", npy(MASK))), ("more", ("a.png", png(1, 1)))]
    answer = httpx.post(url(server, "pictures"), data={"prompt": "tea"}, files=files)
    assert answer.json() == ANSWER | {"more": [[1, 1]]}, answer.text
    files = [("photo", ("p.png", png(3, 2))), ("mask", (None, b"[[1, 2], [3, 4]]")), ("more", ("a.png", png(1, 1)))]
    files += [("more", ("b.png", png(2, 1)))]
    answer = httpx.post(url(server, "pictures"), data={"prompt": "tea"}, files=files)
    assert answer.json() == ANSWER | {"more": [[1, 1], [2, 1]]}, answer.text


def test_a_bad_image_fails_alone_with_the_path_of_its_field(server: Server) -> None:
    good = {"prompt": "tea", "photo": text(png(3, 2)), "mask": MASK.tolist()}
    items = [good, good | {"photo": text(b"no image")}, good | {"mask": [[1]]}, good]
    outcomes = httpx.post(url(server, "pictures/batch"), json=items).json()["outcomes"]
    assert [outcomes[place]["value"] for place in (0, 3)] == [ANSWER, ANSWER]
    problems = [outcomes[place]["problem"] for place in (1, 2)]
    assert [(each["status"], each["field"]) for each in problems] == [(422, "$.photo"), (422, "$.mask")]


def test_open_inference_has_a_tensor_for_each_field(server: Server) -> None:
    slots = {slot["name"]: slot for slot in httpx.get(url(server, "v2/models/pictures")).json()["inputs"]}
    assert (slots["photo"]["datatype"], slots["mask"]["shape"]) == ("BYTES", [-1, 2, 2])
    inputs = [
        {"name": "prompt", "datatype": "BYTES", "shape": [1, 1], "data": ["tea"]},
        {"name": "mask", "datatype": "INT64", "shape": [1, 2, 2], "data": [1, 2, 3, 4]},
    ]
    photo = len(png(3, 2)).to_bytes(4, "little") + png(3, 2)
    binary = {"name": "photo", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(photo)}}
    head = msgspec.json.encode({"inputs": [*inputs, binary]})
    answer = httpx.post(
        url(server, "v2/models/pictures/infer"),
        content=head + photo,
        headers={"inference-header-content-length": str(len(head))},
    )
    assert answer.status_code == 200, answer.text
    assert msgspec.json.decode(answer.json()["outputs"][0]["data"][0]) == ANSWER


def test_openapi_says_how_fields_are_sent(server: Server) -> None:
    schemas = httpx.get(url(server, "openapi.json")).json()["components"]["schemas"]
    picture = schemas["Picture"]["properties"]
    assert picture["photo"] == {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}
    assert picture["mask"]["anyOf"][1]["contentMediaType"] == "application/x-npy"


def test_a_program_sends_images_and_arrays_unchanged() -> None:
    with jitney.run_sync(str(APPS / "pictures.py")) as models:
        item = {"prompt": "tea", "photo": jitney.Image(png(3, 2)), "mask": MASK, "points": [np.ones(2, np.float32)]}
        assert models.pictures(item) == ANSWER | {"points": [[1.0, 1.0]]}
        with pytest.raises(jitney.InvalidInput, match=r"\$\.mask: expected uint8 of shape \(2, 2\), got float64"):
            models.pictures(item | {"mask": MASK.astype(np.float64)})


def decoded(data: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(data)).size


def test_an_answer_has_images_and_arrays_in_json(server: Server) -> None:
    answer = httpx.post(url(server, "detect"), content=png(3, 2), headers={"content-type": "image/png"}).json()
    [detail] = answer["details"]
    assert (answer["label"], answer["mask"], answer["heat"]) == ("red", [[7, 7], [7, 7]], [[1.0, 1.0]])
    assert decoded(base64.b64decode(answer["thumbnail"])) == (3, 2)
    assert (decoded(base64.b64decode(detail["crop"])), detail["scores"]) == ((1, 1), [0.5, 2.0])


def test_an_answer_in_msgpack_has_bytes(server: Server) -> None:
    headers = {"content-type": "image/png", "accept": "application/msgpack"}
    answer = msgspec.msgpack.decode(httpx.post(url(server, "detect"), content=png(3, 2), headers=headers).content)
    assert answer["mask"] == {"dtype": "uint8", "shape": [2, 2], "data": b"\7" * 4}
    assert (decoded(answer["thumbnail"]), answer["heat"]["dtype"]) == ((3, 2), "float64")


def test_open_inference_gives_a_tensor_for_each_field(server: Server) -> None:
    image = png(3, 2)
    photo = {
        "name": "photos",
        "datatype": "BYTES",
        "shape": [1, 1],
        "parameters": {"binary_data_size": len(image) + 4},
    }
    outputs = [{"name": "thumbnail", "parameters": {"binary_data": True}}, {"name": "mask"}]
    head = msgspec.json.encode({"inputs": [photo], "outputs": outputs})
    answer = httpx.post(
        url(server, "v2/models/detect/infer"),
        content=head + len(image).to_bytes(4, "little") + image,
        headers={"inference-header-content-length": str(len(head))},
    )
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["inference-header-content-length"])
    shown = {output["name"]: output for output in msgspec.json.decode(answer.content[:length])["outputs"]}
    assert (shown["mask"]["data"], shown["mask"]["shape"]) == ([7, 7, 7, 7], [1, 2, 2])
    assert decoded(answer.content[length + 4 :]) == (3, 2)


def test_a_program_gets_images_and_arrays() -> None:
    with jitney.run_sync(str(APPS / "pictures.py")) as models:
        answer = models.detect(png(3, 2))
        assert (answer["mask"].dtype, answer["mask"].tolist()) == (np.uint8, [[7, 7], [7, 7]])
        assert answer["heat"].dtype == np.float64 and decoded(answer["thumbnail"]) == (3, 2)


def test_parameters_of_several_types_are_fields_of_one_object(server: Server) -> None:
    document = {"image": text(png(3, 2)), "prompt": "tea", "mask": MASK.tolist()}
    assert httpx.post(url(server, "caption"), json=document).json() == "tea: 3 wide, 10"
    files: Any = {"image": ("p.png", png(3, 2)), "mask": ("m.npy", npy(MASK))}
    answer = httpx.post(url(server, "caption"), data={"prompt": "tea"}, files=files)
    assert answer.json() == "tea: 3 wide, 10", answer.text
    refused = httpx.post(url(server, "caption"), json=document | {"mask": [[1]]})
    assert (refused.status_code, refused.json()["field"]) == (422, "$.mask")
    with jitney.run_sync(str(APPS / "pictures.py")) as models:
        assert models.caption({"image": png(3, 2), "prompt": "tea", "mask": MASK}) == "tea: 3 wide, 10"


def test_arrays_of_unequal_length_share_a_batch(serve: Serve) -> None:
    server = serve("pictures.py")
    signals = [[float(n)] * (n + 1) for n in range(6)]
    answers = server.submit_held("/loudness", signals, blocker=[0.0])
    server.open_gate()
    replies = [answer.result() for answer in answers[1:]]
    assert [reply.json() for reply in replies] == [{"mean": float(n), "together": 6} for n in range(6)]
    body = npy(np.array([1.0, 3.0], np.float32))
    answer = server.post("/loudness", body, {"content-type": "application/x-npy"})
    assert answer.json() == {"mean": 2.0, "together": 1}


def test_an_answer_has_the_media_type_that_the_model_gives(server: Server) -> None:
    answer = httpx.post(url(server, "beep"), json=2)
    assert (answer.headers["content-type"], answer.content) == ("audio/wav", b"RIFFRIFF")
    shown = httpx.post(url(server, "beep"), json=1, headers={"accept": "application/json"})
    assert shown.json() == text(b"RIFF")
    with jitney.run_sync(str(APPS / "pictures.py")) as models:
        assert models.beep(1) == jitney.Response(b"RIFF", "audio/wav")
