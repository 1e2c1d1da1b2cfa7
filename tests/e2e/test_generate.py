"""Triton's generate extension: one item as a JSON object, and its answer as one object or as an event for each part."""

import json
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from harness import JSON, Serve, Server, until

MODEL = {"model_name": "spell", "model_version": "1"}


def events(body: bytes) -> list[Any]:
    """Return the data of each event; every event is complete and has nothing but data."""
    *blocks, rest = body.decode().split("\n\n")
    assert rest == ""
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def stream(server: Server, model: str, item: Any) -> HTTPResponse:
    path = f"http://127.0.0.1:{server.port}/v2/models/{model}/generate_stream"
    return urllib.request.urlopen(urllib.request.Request(path, json.dumps(item).encode()), timeout=60)


def test_an_answer_is_one_object_or_an_event_for_each_part(serve: Serve) -> None:
    server = serve("spelling.py")
    whole = server.post("/v2/models/spell/generate", {"texts": "hey"})
    assert (whole.status, whole.headers["content-type"]) == (200, JSON)
    assert whole.json() == {**MODEL, "output": "hey"}
    spelled = server.post("/v2/models/spell/versions/1/generate_stream", {"texts": "hey", "id": "7"})
    assert spelled.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert events(spelled.body) == [{"id": "7", **MODEL, "output": letter} for letter in "hey"]
    # As the extension's own examples call it, with curl.
    asked = b'{"text_input": "hey", "parameters": {"stream": false, "temperature": 0}}'
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert server.post("/v2/models/spell/generate", asked, form).json() == {**MODEL, "text_output": "hey"}
    assert events(server.post("/v2/models/spell/generate_stream", asked, form).body)[1] == {**MODEL, "text_output": "e"}
    counting = {"model_name": "counting", "model_version": "1"}
    assert server.post("/v2/models/counting/generate", {"parameters": {"to": 2}}).json() == {**counting, "output": 2}
    counted = events(server.post("/v2/models/counting/generate_stream", {"to": 2}).body)
    assert counted == [{**counting, "output": value} for value in ({"number": 0}, {"number": 1}, 2)]
    assert events(server.post("/v2/models/spell/generate_stream", {"texts": ""}).body) == []


def test_models_with_whole_answers_have_one_event(serve: Serve) -> None:
    server = serve("tensors.py")

    def both(model: str, item: Any) -> Any:
        whole = server.post(f"/v2/models/{model}/generate", item).json()
        assert events(server.post(f"/v2/models/{model}/generate_stream", item).body) == [whole]
        return whole

    assert both("texts", {"texts": "abc"})["output"] == "cba"
    assert both("whole", {"x": [1, 2, 3, 4, 5, 6]})["output"] == [1, 3, 5, 2, 4, 6]
    assert both("whole", {"x": [[1, 2], [3, 4]]})["output"] == [1, 3, 2, 4]
    assert both("floats", {"x": [0.5]})["output"] == 0.5
    picture = both("pictures", {"prompt": "a", "parameters": {"width": 9}})
    assert (picture["prompt"], picture["width"], picture["seed"]) == ("a", 9, None)


def test_each_part_is_an_event_when_it_is_made(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py")
    gate = tmp_path / "gate"
    with stream(server, "counting", {"to": 2, "gate": str(gate)}) as reply:
        assert json.loads(reply.readline().removeprefix(b"data: "))["output"] == {"number": 0}, "the gate is shut"
        gate.touch()
        assert len(events(reply.read().removeprefix(b"\n"))) == 2


def test_what_fails_before_the_first_part_has_its_status_and_what_fails_later_is_the_last_event(serve: Serve) -> None:
    server = serve("spelling.py")
    for path in ("generate", "generate_stream"):
        for body, status, says in [
            ({"texts": "!"}, 500, "the model failed"),
            ({}, 400, "input `texts` is missing; the inputs are texts"),
            ({"texts": 7}, 400, ""),
            ({"texts": "a", "id": 7}, 400, "id must be a string"),
            (b"nothing", 400, "the body cannot be read"),
        ]:
            early = server.post(f"/v2/models/spell/{path}", body)
            assert (early.status, early.headers["content-type"]) == (status, JSON), (body, early)
            assert says in early.json()["error"], early
        assert server.post(f"/v2/models/none/{path}", {}).status == 404
        assert server.get(f"/v2/models/spell/{path}").status == 405
    late = server.post("/v2/models/spell/generate_stream", {"texts": "ab!"}, {"x-request-id": "mine-7"})
    assert late.status == 200
    *parts, failure = events(late.body)
    assert [part["output"] for part in parts] == ["a", "b"]
    assert list(failure) == ["error"] and "no shouting" not in failure["error"]
    until(lambda: "no shouting" in server.log() and "mine-7" in server.log(), "the failure in the log")


def test_a_client_that_leaves_ends_its_item(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py")
    gate = tmp_path / "gate"
    with stream(server, "counting", {"to": 1_000_000_000, "gate": str(gate)}) as reply:
        assert reply.readline()
    gate.touch()
    # One replica computes one item at a time: the next answer comes only if the first item has been given up.
    assert server.post("/v2/models/counting/generate", {"to": 1}).json()["output"] == 1
    until(lambda: server.metric("jitney_requests_total", deployment="counting", outcome="cancelled") == 1, "the count")
