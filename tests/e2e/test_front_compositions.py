"""What the front carries out itself, `jitney.chain` and `jitney.together`, with real workers behind it."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from harness import MSGPACK, Serve, Server, serving, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that change nothing."""
    with serving(tmp_path_factory, "passing_on.py") as server:
        yield server


def test_answers_of_a_stage_are_the_items_of_the_next(server: Server) -> None:
    assert server.post("/search", " a ").json() == "<a>"
    assert server.post("/described", "abc").json() == "3 of a"
    assert server.post("/v1/described", "abc").json() == "3 of a", "its own route"
    assert server.post("/doubled", "ab").json() == [4.0, 194.0]
    assert server.post("/weighed", "x").json() == [1.0], "arrays go by their names"
    assert server.post("/joined", "ab").json() == [6.0, 291.0], "a chain of an ensemble of a chain"


def test_many_items_keep_their_order_and_share_batches_of_each_stage(server: Server) -> None:
    texts = [f" t{n} " for n in range(40)]
    outcomes = server.post("/search/batch", texts).json()["outcomes"]
    assert [outcome["value"] for outcome in outcomes] == [f"<t{n}>" for n in range(40)]
    assert max(len(call.items) for call in server.calls("clean") if " t1 " in call.items) > 1
    assert max(len(call.items) for call in server.calls("mark") if "t1" in call.items) > 1


def test_an_ensemble_answers_with_all_answers_by_name(server: Server) -> None:
    assert server.post("/both", "abc").json() == {"marked": "<abc>", "found": {"length": 3, "first": "a"}}
    packed = server.post("/both", "abc", {"accept": MSGPACK})
    assert msgspec.msgpack.decode(packed.body) == {"marked": "<abc>", "found": {"length": 3, "first": "a"}}
    assert server.post("/vectors", "ab").json() == {"long": [4.0, 194.0], "short": [2.0, 97.0]}
    everything = {"box.boxes": [1.0, 1.0], "box.scores": 0.5, "text": "<ab>", "vector": [2.0, 97.0]}
    assert server.post("/everything", "ab").json() == everything


def test_failures_have_the_name_of_their_stage(server: Server) -> None:
    first = server.post("/search", "bad first")
    assert (first.status, first.json()["detail"]) == (422, "clean: not for the first")
    assert server.post("/search", "bad").status == 500, "the client has sent nothing that is wrong"
    assert server.post("/search", "raise").status == 500
    busy = server.post("/search", "busy")
    assert (busy.status, busy.headers["retry-after"]) == (429, "7")
    assert busy.json()["detail"].startswith("mark: ")
    assert "mark: InvalidInput: not for the second" in server.log() or "mark: not for the second" in server.log()
    assert server.post("/both", "bad").status == 422, "a member of an ensemble gets what the client sent"


def test_the_id_and_the_trace_pass_on(server: Server) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = server.post("/telling", " who ", {"x-request-id": "mine-7", "traceparent": trace})
    assert answer.json() == f"who mine-7 {trace}"


def test_a_model_uses_it_like_any_deployment(server: Server) -> None:
    assert server.post("/above", " a ").json() == "(<a>)"
    assert server.post("/above", "busy").status == 429


def test_pages_and_protocols_know_it(server: Server) -> None:
    deployments = server.get("/config").json()["deployments"]
    assert (deployments["search"]["uses"], deployments["search"]["doc"]) == (["clean", "mark"], "clean, then mark.")
    document = server.get("/openapi.json").json()
    assert {"/search", "/search/batch", "/v1/described", "/both"} <= document["paths"].keys()
    both = json.dumps(document["paths"]["/both"])
    assert "marked" in both
    assert server.get("/v2/models/vectors/ready").status == 200
    metadata = server.get("/v2/models/vectors").json()
    assert [one["name"] for one in metadata["outputs"]] == ["long", "short"]
    tensor = {"name": metadata["inputs"][0]["name"], "shape": [2, 1], "datatype": "BYTES", "data": ["ab", "b"]}
    answer = server.post("/v2/models/vectors/infer", {"inputs": [tensor]}).json()
    assert answer["outputs"][1]["data"] == [2.0, 97.0, 1.0, 98.0]


def test_it_is_counted_like_any_deployment(server: Server) -> None:
    def ended(deployment: str) -> float:
        return server.metric("jitney_requests_total", deployment=deployment, outcome="ok")

    before = [ended(name) for name in ("search", "clean", "mark")]
    assert server.post("/search", "counted").status == 200
    assert [ended(name) for name in ("search", "clean", "mark")] == [count + 1 for count in before]
    assert server.metric("jitney_request_duration_seconds_count", deployment="search") >= 1


def test_a_deadline_holds_in_each_stage(serve: Serve) -> None:
    server = serve("passing_on.py")
    server.shut_gate()
    late = server.post("/search", "late", {"x-request-timeout-ms": "300"})
    assert (late.status, late.json()["detail"].partition(":")[0]) == (504, "mark")
    until(lambda: server.metric("jitney_queued_items") == 0, "it has left its lane")
    server.open_gate()
    assert server.post("/search", "next").json() == "<next>"


def test_what_nobody_waits_for_is_not_computed(serve: Serve) -> None:
    server = serve("passing_on.py")
    server.shut_gate()
    blocker = server.submit("/mark", "blocker")
    until(lambda: server.calls("mark"), "the second stage is busy")
    for number in range(50):
        client = server.client(timeout_s=0.1)
        with pytest.raises(OSError):
            client.post("/search", f"left-{number}")
        client.close()
    until(lambda: server.metric("jitney_queued_items") == 0, "all are cancelled in their stage")
    server.open_gate()
    assert blocker.result().status == 200
    assert server.post("/search", "next").json() == "<next>"
    computed = Counter(item for call in server.calls("mark") for item in call.items)
    # One batch may have been sent to the worker before its clients left.
    assert sum(count for item, count in computed.items() if item.startswith("left")) <= 16
    assert server.metric("jitney_requests_total", deployment="search", outcome="cancelled") == 50


@pytest.mark.parametrize("stage", ["clean", "mark"])
def test_a_killed_worker_of_a_stage_loses_nothing(serve: Serve, stage: str) -> None:
    server = serve("passing_on.py")
    answers = {f"sleep-{n}": server.submit("/search", f"sleep-{n}") for n in range(100)}
    until(lambda: len(server.calls("mark")) > 5, "the second stage computes")
    os.kill(server.calls(stage)[0].pid, signal.SIGKILL)
    for text, answer in answers.items():
        assert answer.result().json() == f"<{text}>"
    assert server.metric("jitney_workers_lost_total", deployment=stage) == 1
    assert server.metric("jitney_requests_total", deployment="search", outcome="ok") == len(answers)


def test_a_chain_is_refused_while_a_later_stage_has_no_room(serve: Serve) -> None:
    small = ("mark.max_queued_items=4", "mark.max_batch_size=1", "mark.max_wait_s=60")
    server = serve("passing_on.py", arguments=tuple(word for one in small for word in ("--set", one)))
    server.shut_gate()
    # Those for which the worker and the queue have no room are refused.
    held = [server.submit("/mark", "held")]

    def is_full() -> bool:
        held.append(server.submit("/mark", "held"))
        return server.metric("jitney_queued_items", deployment="mark") == 4

    until(is_full, "its queue is full, and its worker takes nothing out of it")
    before = len(server.calls("clean"))
    refused = server.post("/search", "refused")
    assert (refused.status, refused.json()["detail"].startswith("mark: ")) == (429, True)
    assert len(server.calls("clean")) == before, "no work was done for it"
    server.open_gate()
    assert {answer.result().status for answer in held} <= {200, 429}
    assert server.post("/search", "welcome").json() == "<welcome>"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("c = jitney.chain(Number, Text)", "jitney.chain `c`: number returns int, and text takes text"),
        ("c = jitney.chain(Text, Number, replicas=2)", "there is no option 'replicas' for what the front carries out"),
        ("c = jitney.chain(Text, Parts)", "parts answers in parts"),
        ("c = jitney.together(a=Text, b=Vectors)", "text takes text, and vectors takes arrays: float32 of any shape"),
        ("c = jitney.chain(Text, Vectors)", "text returns text, and vectors takes arrays: float32 of any shape"),
    ],
)
def test_what_does_not_fit_is_refused_at_load_time(serve: Serve, tmp_path: Path, line: str, said: str) -> None:
    app = tmp_path / "refused.py"
    app.write_text(REFUSED + line + "\n")
    server = serve(str(app), wait=False)
    assert server.wait_exit() == 1
    assert said in server.log()


REFUSED = """
from collections.abc import Iterator

import jitney
import numpy as np


@jitney.deployment
def text(texts: list[str]) -> list[str]:
    return texts


@jitney.deployment
def number(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@jitney.deployment(batched=False)
def parts(text: str) -> Iterator[str]:
    yield text


@jitney.deployment
def vectors(arrays: np.ndarray) -> np.ndarray:
    return arrays


Text, Number, Parts, Vectors = text, number, parts, vectors
"""


def test_a_circle_through_a_chain_is_refused_with_its_path(serve: Serve, tmp_path: Path) -> None:
    app = tmp_path / "circle.py"
    app.write_text(CIRCLE)
    server = serve(str(app), wait=False)
    assert server.wait_exit() == 1
    assert "again -> loop -> again;" in server.log() or "loop -> again -> loop;" in server.log()


CIRCLE = """
import jitney


@jitney.deployment
def text(texts: list[str]) -> list[str]:
    return texts


@jitney.deployment(batched=False)
class Again:
    loop = jitney.uses("loop")

    async def predict(self, text: str) -> str:
        return await self.loop(text)


loop = jitney.chain(text, Again)
"""
