"""Models whose `predict` is `async def`, over HTTP and with real workers."""

import socket

from harness import Serve, until


def test_items_are_answered_and_the_model_is_closed_on_its_loop(serve: Serve) -> None:
    server = serve("coroutines.py:Single")
    blocker, *good, bad = server.submit_held("/single", ["a", "b", "bad"])
    server.open_gate()
    assert [reply.result().json() for reply in (blocker, *good)] == ["rekcolb", "a", "b"]
    assert bad.result().reason == "model_failed"
    server.terminate()
    assert server.wait_exit() == 0
    assert len(server.calls("close")) == 1


def test_neighbours_of_a_held_item_are_answered_while_it_runs(serve: Serve) -> None:
    server = serve("coroutines.py:Single", arguments=("--set", "single.max_batch_delay_ms=60000"))
    server.shut_gate()
    # The batch is full with eight items, and leaves then.
    held = server.submit("/single", "held")
    others = [server.submit("/single", f"item {number}") for number in range(7)]
    assert [reply.result().json() for reply in others] == [f"{number} meti" for number in range(7)]
    assert not held.done()
    server.open_gate()
    reply = held.result()
    assert (reply.json(), reply.batch_size) == ("dleh", 8)
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
    assert [call.items for call in server.calls("cancelled")] == [["forever late"], ["forever gone"]]
    assert server.post("/single", "abc").json() == "cba"
    assert server.metric("jitney_workers_lost_total") == 0


def test_a_bad_item_of_a_whole_batch_fails_alone(serve: Serve) -> None:
    server = serve("coroutines.py:whole")
    reply = server.post("/whole/batch", ["a", "bad", "c", "d"])
    values = [outcome.get("value", outcome.get("problem", {}).get("reason")) for outcome in reply.json()["outcomes"]]
    assert values == ["a", "model_failed", "c", "d"], reply.json()
