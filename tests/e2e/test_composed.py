"""Models that use each other: real workers at each level."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from http.client import HTTPConnection

import pytest
from harness import APPS, JSON, Reply, Serve, Server, serving, until

CROWD = 200
"""Requests: more than the top computes at once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that change nothing."""
    with serving(tmp_path_factory, "composed.py") as server:
        yield server


def test_answers_come_through_all_levels(server: Server) -> None:
    assert server.post("/middle", "a").json() == "(<a>)"
    assert server.post("/top", "a").json() == "(<a>) <a>"
    answers: list[Future[Reply]] = [server.submit("/top", f"{n}") for n in range(200)]
    assert [answer.result().json() for answer in answers] == [f"(<{n}>) <{n}>" for n in range(200)]


def test_a_batch_of_a_model_that_waits_is_a_batch_of_the_other(server: Server) -> None:
    texts = [f"t{n}" for n in range(12)]
    outcomes = server.post("/blocking/batch", texts).json()["outcomes"]
    assert [outcome["value"] for outcome in outcomes] == [f"[<{text}>]" for text in texts]
    assert max(len(call.items) for call in server.calls("base") if "t0" in call.items) > 1


def test_failures_keep_their_meaning_and_name_the_model(server: Server) -> None:
    busy = server.post("/top", "busy")
    assert (busy.status, busy.headers["retry-after"]) == (429, "7")
    assert server.post("/middle", "bad").status == 500, "the client of the middle has sent nothing that is wrong"
    assert server.post("/middle", "raise").status == 500
    assert "base: " in server.log()
    assert server.post("/top", "mine").status == 422
    assert server.post("/asking", "bad").json() == "InvalidInput 422"
    assert server.post("/asking", "busy").json() == "QueueFull 429"
    assert server.post("/asking", "raise").json() == "ModelFailed 500"
    assert server.post("/asking", "many 2000").status == 429, "one item may have so many others at work"
    assert server.post("/asking", "many 3").json() == "<many 3> <many 3> <many 3>"


def test_the_id_and_the_trace_of_the_request_pass_on(server: Server) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = server.post("/asking", "who", {"x-request-id": "mine-7", "traceparent": trace})
    assert answer.json() == f"mine-7 {trace}"


def test_parts_of_a_model_are_parts_of_the_one_that_uses_it(server: Server) -> None:
    assert server.post("/passing", "some words").json() == "SOME WORDS"
    events = server.post("/passing", "ab", {"accept": "text/event-stream"}).body.decode()
    assert events.index('data: "A"') < events.index('data: "B"') < events.index("event: end")


def test_manifests_say_who_uses_whom(server: Server) -> None:
    deployments = server.get("/config").json()["deployments"]
    assert deployments["top"]["uses"] == ["base", "middle"]


def test_a_deadline_holds_at_every_level(serve: Serve) -> None:
    server = serve("composed.py", is_gate_shut=False)
    server.shut_gate()
    hurried = {"x-request-timeout-ms": "300"}
    assert server.post("/top", "late", hurried).status == 504
    until(lambda: server.metric("jitney_queued_items") == 0, "what was asked for it has left its queue")
    server.open_gate()
    until(lambda: server.metric("jitney_running_items") == 0, "all have ended")
    assert server.post("/top", "next").json() == "(<next>) <next>"


def test_what_nobody_waits_for_is_not_computed(serve: Serve) -> None:
    server = serve("composed.py")
    server.shut_gate()
    before = len(server.calls("base"))
    blocker = server.submit("/base", "blocker")
    until(lambda: len(server.calls("base")) > before, "the base is busy")
    for number in range(50):
        client = server.client(timeout_s=0.1)
        with pytest.raises(OSError):
            client.post("/top", f"left-{number}")
        client.close()
    until(lambda: server.metric("jitney_queued_items") == 0, "all are cancelled at every level")
    server.open_gate()
    assert blocker.result().status == 200
    assert server.post("/top", "next").json() == "(<next>) <next>"
    computed = Counter(item for call in server.calls("base") for item in call.items)
    # One batch may have been sent to the worker before its clients left.
    assert sum(count for item, count in computed.items() if item.startswith("left")) <= 16


def waits_at_every_level(server: Server, text: str, headers: Mapping[str, str]) -> list[HTTPConnection]:
    """Send more requests than the top has places, while the base is held. Their answers are not read."""
    server.shut_gate()
    connections = [HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(CROWD)]
    for number, connection in enumerate(connections):
        connection.request("POST", "/top", json.dumps(f"{text}-{number}"), {"content-type": JSON, **headers})

    def everywhere() -> bool:
        queued = [server.metric("jitney_queued_items", deployment=level) for level in ("top", "base")]
        return min(*queued, server.metric("jitney_running_items", deployment="middle")) > 0

    until(everywhere, "items wait for a place at the top, for an answer in the middle, and in the queue of the base")
    return connections


def assert_little_was_computed(server: Server, text: str) -> None:
    """Whatever waited was given up at every level: at most the batch that the base had begun was computed."""
    until(lambda: server.metric("jitney_queued_items") == 0, "nothing waits")
    server.open_gate()
    until(lambda: server.metric("jitney_running_items") == 0, "nothing runs")
    later = [f"next-{number}" for number in range(800)]
    outcomes = server.post("/top/batch", later).json()["outcomes"]
    assert [outcome["value"] for outcome in outcomes] == [f"(<{one}>) <{one}>" for one in later]
    computed = Counter(item.partition("-")[0] for call in server.calls("base") for item in call.items)
    assert computed["next"] == 2 * len(later), "none is computed twice"
    assert computed[text] <= 16
    assert computed[text] <= computed.total() / 100


def test_clients_that_leave_are_given_up_at_every_level(serve: Serve) -> None:
    server = serve("composed.py")
    for connection in waits_at_every_level(server, "left", {}):
        connection.close()
    gone = {"deployment": "top", "outcome": "cancelled"}
    until(lambda: server.metric("jitney_requests_total", **gone) == CROWD, "all have left")
    assert_little_was_computed(server, "left")


def test_deadlines_that_pass_give_up_items_at_every_level(serve: Serve) -> None:
    server = serve("composed.py")
    connections = waits_at_every_level(server, "late", {"x-request-timeout-ms": "4000"})
    answers = [connection.getresponse() for connection in connections]
    # Those at the front of the queue are late at the base, and those behind them are refused or late at the top.
    assert {answer.status for answer in answers} == {504}
    for connection in connections:
        connection.close()
    assert_little_was_computed(server, "late")


@pytest.mark.parametrize("level", ["base", "middle", "top"])
def test_a_killed_worker_of_any_level_loses_nothing(serve: Serve, level: str) -> None:
    server = serve("composed.py")
    answers = {f"sleep-{n}": server.submit("/top", f"sleep-{n}") for n in range(100)}
    until(lambda: len(server.calls("base")) > 5, "the base computes")
    os.kill(random.choice([call.pid for call in server.calls(level)]), signal.SIGKILL)
    for text, answer in answers.items():
        assert answer.result().json() == f"(<{text}>) <{text}>"
    assert server.metric("jitney_workers_lost_total", deployment=level) == 1
    assert server.metric("jitney_requests_total", deployment="top", outcome="ok") == len(answers)


def test_an_input_that_kills_the_inner_model_fails_the_request_and_suspects_nobody_else(serve: Serve) -> None:
    server = serve("composed.py")
    assert server.post("/middle", "kill").status == 502
    assert server.metric("jitney_workers_lost_total", deployment="middle") == 0
    until(lambda: server.metric("jitney_ready_replicas", deployment="base") == 1, "the base is back")
    assert server.post("/middle", "fine").json() == "(<fine>)"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a = jitney.uses('b')\nb = jitney.uses('a')", "a -> b -> a"),
        ("a = jitney.uses('absent')\nb = None", "a uses absent, which this server does not serve"),
    ],
)
def test_a_graph_that_cannot_work_is_refused(serve: Serve, tmp_path: object, source: str, said: str) -> None:
    uses = source.split("\n")
    app = APPS / f"refused_{os.getpid()}.py"
    body = "".join(
        f"@jitney.deployment(batched=False)\nclass {name.upper()}:\n    {line}\n"
        "    async def predict(self, text: str) -> str:\n        return text\n\n"
        for name, line in zip("ab", uses, strict=True)
    )
    app.write_text(f"import jitney\n\n{body}")
    try:
        server = serve(app.name, wait=False)
        assert server.wait_exit() == 1
        assert said in server.log()
    finally:
        app.unlink()
