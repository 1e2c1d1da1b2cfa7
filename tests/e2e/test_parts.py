"""Answers that come in parts: events and lines over HTTP, and whole answers for other clients."""

import json
import time
from pathlib import Path

from event_streams import EVENTS, events, stream
from harness import Serve, until

LINES = "application/x-ndjson"


def test_parts_are_events_and_lines_and_one_answer(serve: Serve) -> None:
    server = serve("spelling.py")
    whole = server.post("/spell", "hey")
    assert (whole.status, whole.json()) == (200, "hey")
    spelled = server.post("/spell", "hey", {"accept": EVENTS})
    assert events(spelled.body.decode()) == [("", "h"), ("", "e"), ("", "y"), ("end", {"reason": "stop"})]
    assert spelled.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (spelled.headers["cache-control"], spelled.headers["x-accel-buffering"]) == ("no-cache", "no")
    counted = server.post("/counting", {"to": 2}, {"accept": LINES}).body.decode().splitlines()
    end = {"reason": "length", "usage": {"input": 1, "output": 2}, "answer": 2}
    assert [json.loads(line) for line in counted] == [{"part": {"number": 0}}, {"part": {"number": 1}}, {"end": end}]
    assert server.post("/counting", {"to": 2}).json() == 2
    assert server.post("/spell/batch", ["a", "bcd"]).json()["outcomes"] == [{"value": "a"}, {"value": "bcd"}]
    tensor = {"name": "texts", "datatype": "BYTES", "shape": [2], "data": ["ab", "c"]}
    answer = server.post("/v2/models/spell/infer", {"inputs": [tensor]})
    assert answer.json()["outputs"][0]["data"] == ["ab", "c"]


def test_each_part_reaches_the_client_when_it_is_made(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py")
    gate = tmp_path / "gate"
    with stream(server, "/counting", {"to": 2, "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: {"number":0}\n', "the model waits for the gate"
        gate.touch()
        rest = reply.read().decode()
    assert events(rest.removeprefix("\n"))[0] == ("", {"number": 1})


def test_a_model_may_be_faster_than_its_client(serve: Serve) -> None:
    server = serve("spelling.py")
    lines = server.post("/counting", {"to": 10_000}, {"accept": LINES}).body.decode().splitlines()
    assert [json.loads(line)["part"]["number"] for line in lines[:-1]] == list(range(10_000))
    assert "end" in json.loads(lines[-1])


def test_an_answer_whose_first_part_came_in_time_may_take_longer_than_a_request(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py", arguments=("--set", "counting.request_timeout_s=2"))
    gate = tmp_path / "gate"
    with stream(server, "/counting", {"to": 3, "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: {"number":0}\n'
        time.sleep(2.1)  # the model waits for the gate until after the time of a request
        gate.touch()
        rest = reply.read().decode()
    assert [name for name, _ in events(rest.removeprefix("\n"))] == ["", "", "end"]


def test_what_fails_before_the_first_part_has_its_status_and_what_fails_later_says_so(serve: Serve) -> None:
    server = serve("spelling.py")
    early = server.post("/spell", "!", {"accept": EVENTS})
    assert (early.status, early.reason) == (500, "model_failed")
    malformed = server.post("/counting", {"to": "x"}, {"accept": EVENTS})
    assert (malformed.status, malformed.json()["field"]) == (422, "$.to")
    late = server.post("/spell", "ab!", {"accept": EVENTS, "x-request-id": "mine-7"})
    assert late.status == 200
    *parts, (name, problem) = events(late.body.decode())
    assert (parts, name) == ([("", "a"), ("", "b")], "error")
    assert (problem["reason"], problem["request_id"]) == ("model_failed", "mine-7")
    assert "no shouting" not in problem["detail"]
    until(lambda: "no shouting" in server.log() and "mine-7" in server.log(), "the failure in the log")


def test_a_client_that_leaves_ends_the_generator(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py", arguments=("--access-log", "1"))
    gate = tmp_path / "gate"
    with stream(server, "/counting", {"to": 1_000_000_000, "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: {"number":0}\n'
    gate.touch()
    # One replica computes one item at a time: the next answer comes only if the first item has been given up.
    assert server.post("/counting", {"to": 1}).json() == 1
    until(lambda: server.metric("jitney_requests_total", deployment="counting", outcome="cancelled") == 1, "the count")
    until(lambda: "deployment=counting outcome=cancelled status=200" in server.log(), "its line in the access log")


def test_streams_are_measured_and_whole_answers_are_not(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling.py")
    gate = tmp_path / "gate"
    with stream(server, "/counting", {"to": 3, "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: {"number":0}\n'
        time.sleep(0.1)  # the second part waits for the gate
        gate.touch()
        reply.read()
    assert server.post("/counting", {"to": 2}).json() == 2
    server.post("/spell", "ab!", {"accept": EVENTS})

    def metric(name: str, **labels: str) -> float:
        return server.metric(f"jitney_{name}", deployment="counting", **labels)

    until(lambda: metric("streams_total", outcome="ok") == 1, "the stream is counted when its body has ended")
    assert [metric("first_part_seconds_count"), metric("part_gap_seconds_count"), metric("parts_total")] == [1, 2, 3]
    assert metric("part_gap_seconds_sum") >= 0.1, "the client waited for the second part"
    assert [metric("tokens_total", kind="input"), metric("tokens_total", kind="output")] == [2, 5], "of both answers"
    assert server.metric("jitney_streams_total", deployment="spell", outcome="model_failed") == 1
