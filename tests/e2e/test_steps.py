"""Models that work in steps: items join and leave a running model, over HTTP."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from event_streams import EVENTS, failure, stream
from harness import Reply, Serve, Server, until


def write(server: Server, text: str) -> Reply:
    return server.post("/write", {"text": text})


def test_parts_and_whole_answers(serve: Serve) -> None:
    server = serve("stepping.py")
    assert server.post("/write", {"text": "hello"}).json() == "hello"
    body = server.post("/write", {"text": "hey"}, {"accept": EVENTS}).body.decode()
    end = 'event: end\ndata: {"reason":"length","usage":{"input":1,"output":3}}\n\n'
    assert body == 'data: "h"\n\ndata: "e"\n\ndata: "y"\n\n' + end
    texts = [f"text-{number}" for number in range(20)]
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(partial(write, server), texts))
        assert [answer.json() for answer in answers] == texts, "each its own, whatever else runs"
    until(lambda: "holds 0" in server.log().splitlines()[-1] + server.stdout()[-200:], "every state is released")


def test_an_item_joins_while_another_runs(serve: Serve, tmp_path: Path) -> None:
    server = serve("stepping.py")
    gate = tmp_path / "gate"
    with stream(server, "/write", {"text": "long one", "gate": str(gate)}) as first:
        assert first.readline() == b'data: "l"\n', "it runs, and waits before its second letter"
        names = [entry.split(";")[0] for entry in first.headers["server-timing"].split(", ")]
        assert (names, first.headers["x-jitney-batch-size"]) == (["queue", "first-part"], "1")
        second = server.submit("/write", {"text": "xy"})
        until(lambda: server.metric("jitney_batches_total", deployment="write", reason="joined") == 2, "it was sent")
        gate.touch()
        assert second.result().json() == "xy"
        assert first.read().decode().endswith('"usage":{"input":1,"output":8}}\n\n')


def test_a_failing_state_fails_alone(serve: Serve) -> None:
    server = serve("stepping.py")
    with ThreadPoolExecutor(4) as threads:
        texts = ["abcd", "ab!", "efgh", "ijkl"]
        answers = list(threads.map(partial(write, server), texts))
    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert [answers[place].json() for place in (0, 2, 3)] == ["abcd", "efgh", "ijkl"]


def test_a_client_that_leaves_ends_its_item(serve: Serve, tmp_path: Path) -> None:
    server = serve("stepping.py")
    gate = tmp_path / "gate"
    with stream(server, "/write", {"text": "x" * 1_000_000, "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: "x"\n'
    gate.touch()
    until(lambda: "holds 0" in server.log() + server.stdout(), "its state is released")
    until(lambda: server.metric("jitney_requests_total", deployment="write", outcome="cancelled") == 1, "it is counted")


def test_a_worker_that_dies_ends_streams_with_an_error_and_runs_the_others_again(serve: Serve, tmp_path: Path) -> None:
    server = serve("stepping.py")
    gate = tmp_path / "gate"
    with stream(server, "/write", {"text": "first", "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: "f"\n'
        whole = server.submit("/write", {"text": "whole"})
        until(lambda: server.metric("jitney_batches_total", deployment="write", reason="joined") == 2, "it was sent")
        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)
        gate.touch()
        assert failure(reply) == "worker_lost"
        answer = whole.result()
        assert (answer.status, answer.json()) == (200, "whole"), "no part of it had left"


def test_steps_are_measured(serve: Serve, tmp_path: Path) -> None:
    server = serve("stepping.py")
    gate = tmp_path / "gate"

    def metric(name: str) -> float:
        return server.metric(f"jitney_{name}", deployment="write")

    with stream(server, "/write", {"text": "long", "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: "l"\n'
        assert metric("active_items") == 1
        gate.touch()
        reply.read()
    assert write(server, "ab").json() == "ab"
    until(lambda: metric("active_items") == 0, "both have ended")
    assert [metric(name) for name in ("steps_total", "step_seconds_count", "step_items_sum")] == [6, 6, 6]
    assert metric("joins_total") == 2


def test_items_that_do_not_fit_into_the_memory_wait_and_fewer_join(serve: Serve) -> None:
    server = serve("flowing.py")

    def post(_: int) -> int:
        return server.post("/tight", {"parts": 20, "letters": 1}).status

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(post, range(24))) == {200}
    assert "tight: the items of a step were too large for the memory of its device" in server.log()
    assert server.metric("jitney_active_items", deployment="tight") == 0


def test_a_stream_that_outlasts_the_shutdown_ends_with_an_error(serve: Serve, tmp_path: Path) -> None:
    server = serve("stepping.py", arguments=("--drain-timeout-s", "1", "--drain-grace-s", "0"))
    with stream(server, "/write", {"text": "long one", "gate": str(tmp_path / "gate")}) as reply:
        assert reply.readline() == b'data: "l"\n', "its second letter never comes"
        server.process.send_signal(signal.SIGTERM)
        assert failure(reply) == "draining"
    assert server.process.wait(60) == 1
