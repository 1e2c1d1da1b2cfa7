"""Models whose `predict` is `async def`, over HTTP and with real workers."""

import os
import signal
import socket

from harness import Serve, Server, until


def accepts(server: Server) -> bool:
    try:
        return server.get("/readyz").status == 200
    except OSError:
        return False


def test_items_are_answered_and_the_model_is_closed_on_its_loop(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    *good, bad = [server.submit("/single", item) for item in ("ab", "cd", "bad")]
    assert [reply.result().json() for reply in good] == ["ba", "dc"]
    assert bad.result().reason == "model_failed"
    server.terminate()
    assert server.wait_exit() == 0
    assert len(server.calls("close")) == 1


def test_neighbours_of_a_held_item_are_answered_while_it_runs(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    server.shut_gate()
    held = server.submit("/single", "held")
    until(lambda: "held" in server.computed(), "it runs")
    for number in range(20):
        assert server.post("/single", f"item {number:02}").json() == f"item {number:02}"[::-1]
    assert not held.done(), "all of them joined the worker after it, and ended before it"
    server.open_gate()
    assert held.result().json() == "dleh"
    assert server.get("/config").json()["deployments"]["single"]["options"]["concurrent"] is True


def test_a_client_that_leaves_and_a_deadline_cancel_their_coroutines(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    late = server.post("/single", "forever late", {"x-request-timeout-ms": "200"})
    assert late.reason == "deadline_exceeded"
    with socket.create_connection(("127.0.0.1", server.port)) as leaver:
        body = b'"forever gone"'
        leaver.sendall(b"POST /single HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        until(lambda: "forever gone" in server.computed(), "the item has reached predict")
    until(lambda: len(server.calls("cancelled")) == 2, "both coroutines were cancelled")
    assert sorted(call.items[0] for call in server.calls("cancelled")) == ["forever gone", "forever late"]
    assert server.post("/single", "abc").json() == "cba"
    assert server.metric("jitney_workers_lost_total") == 0


def test_as_many_run_as_have_room_and_the_next_joins_when_one_has_ended(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    server.shut_gate()
    held = [server.submit("/single", f"held {number}") for number in range(8)]
    until(lambda: len(server.computed()) == 8, "all places are taken")
    waiting = [server.submit("/single", f"next {number}") for number in range(20)]
    until(lambda: server.metric("jitney_queued_items", deployment="single") == 20, "there is no room for them")
    assert len(server.computed()) == 8
    server.open_gate()
    assert all(reply.result().status == 200 for reply in (*held, *waiting))
    running = most = 0
    for call in server.calls("predict", "end"):
        running += 1 if call.kind == "predict" else -1
        most = max(most, running)
    assert (running, most) == (0, 8)


def test_a_killed_worker_costs_no_whole_answer(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    server.shut_gate()
    held = [server.submit("/single", f"held {number}") for number in range(4)]
    until(lambda: len(server.computed()) == 4, "all of them run")
    [worker] = server.workers()
    os.kill(worker, signal.SIGKILL)
    server.open_gate()
    assert [reply.result().json() for reply in held] == [f"held {number}"[::-1] for number in range(4)]


def test_a_drain_waits_for_what_runs(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    server.shut_gate()
    held = [server.submit("/single", f"held {number}") for number in range(3)]
    until(lambda: len(server.computed()) == 3, "all of them run")
    server.terminate()
    until(lambda: not accepts(server), "it accepts nothing new")
    server.open_gate()
    assert [reply.result().json() for reply in held] == [f"held {number}"[::-1] for number in range(3)]
    assert server.wait_exit() == 0
    assert len(server.calls("close")) == 1


def test_an_event_loop_that_stands_still_is_a_hang_and_one_that_waits_is_not(serve: Serve) -> None:
    server = serve(
        "coroutines.py:Single", arguments=("--set", "single.batch_timeout_s=2", "--set", "single.retry=false")
    )
    silent = server.post("/single", "forever silent")
    assert (silent.reason, server.metric("jitney_workers_lost_total")) == ("model_failed", 0), silent.body
    assert "batch_timeout_s" in server.log()
    stuck = server.post("/single", "stuck")
    assert stuck.reason == "worker_lost"
    # The answer leaves before the process of the worker has ended.
    until(lambda: server.metric("jitney_workers_lost_total") == 1, "the worker is lost")


def test_a_bad_item_of_a_whole_batch_fails_alone(serve: Serve) -> None:
    server = serve("coroutines.py:whole")
    reply = server.post("/whole/batch", ["a", "bad", "c", "d"])
    values = [outcome.get("value", outcome.get("problem", {}).get("reason")) for outcome in reply.json()["outcomes"]]
    assert values == ["a", "model_failed", "c", "d"], reply.json()
