"""Who shares a batch, who goes first, and who is not computed at all."""

import http.client
import json

from harness import Serve, until


def test_interleaved_groups_ride_in_full_batches_of_their_own(serve: Serve) -> None:
    server = serve("grouped.py")
    items = [{"prompt": f"p{n}", "width": 256 if n % 2 else 512} for n in range(32)]
    answers = server.submit_held("/grouped", items, blocker={"prompt": "blocker", "width": 1})
    server.open_gate()
    for item, answer in zip(items, answers[1:], strict=True):
        reply = answer.result()
        assert reply.status == 200, reply
        assert reply.json() == {"prompt": item["prompt"], "keys": [[item["width"], 512, 20]], "size": 8}
    assert sorted(len(call.items) for call in server.calls()) == [1, 8, 8, 8, 8]
    told = server.get("/config").json()["deployments"]["grouped"]["batches"]["groups"]
    assert {group["group"]: group["batches_measured"] for group in told} == {
        "1, 512, 20": 1,
        "512, 512, 20": 2,
        "256, 512, 20": 2,
    }


def test_equal_numbers_are_one_group(serve: Serve) -> None:
    server = serve("grouped.py")
    given: list[object] = [{"prompt": "a", "width": 512}, {"prompt": "b"}, {"height": 512, "prompt": "c", "steps": 20}]
    answers = server.submit_held("/grouped", given, blocker={"prompt": "blocker", "width": 1})
    server.open_gate()
    assert [answer.result().json()["size"] for answer in answers] == [1, 3, 3, 3]


def test_higher_priorities_go_first_and_order_is_kept(serve: Serve) -> None:
    options = ("--set", "sleepy.max_batch_size=1", "--set", "sleepy.priority_boost_s=600")
    server = serve("sleepy.py", arguments=options)
    # One batch runs and one full batch may wait with the worker: those two are out of the lane.
    answers = server.submit_held("/sleepy", ["ahead"])
    waiting = [("low", "l1"), ("normal", "n1"), ("high", "h1"), ("low", "l2"), ("normal", "n2"), ("high", "h2")]
    for count, (priority, item) in enumerate(waiting, 3):
        answers.append(server.submit("/sleepy", item, {"x-priority": priority}))
        server.wait_inside(count)
    server.open_gate()
    assert all(answer.result().status == 200 for answer in answers)
    order = [item for call in server.calls() for item in call.items]
    assert order == ["blocker", "ahead", "h1", "h2", "n1", "n2", "l1", "l2"]


def test_a_deadline_is_kept_and_its_item_is_never_computed(serve: Serve) -> None:
    server = serve("sleepy.py")
    answers = server.submit_held("/sleepy", ["patient"])
    late = server.post("/sleepy", "late", {"x-request-timeout-ms": "200"})
    assert (late.status, late.reason) == (504, "deadline_exceeded")
    assert late.headers["x-should-retry"] == "false"
    server.open_gate()
    assert [answer.result().json() for answer in answers] == ["rekcolb", "tneitap"]
    assert "late" not in server.computed()


def test_the_item_of_a_client_that_left_is_never_computed(serve: Serve) -> None:
    server = serve("sleepy.py")
    answers = server.submit_held("/sleepy", ["stays"])
    leavers = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(20)]
    for number, leaver in enumerate(leavers):
        leaver.request("POST", "/sleepy", json.dumps(f"leaver-{number}"), {"content-type": "application/json"})
    server.wait_inside(22)
    for leaver in leavers:
        leaver.close()
    server.wait_inside(2)
    server.open_gate()
    assert [answer.result().status for answer in answers] == [200, 200]
    assert server.post("/sleepy", "after").json() == "retfa"
    assert set(server.computed()) == {"blocker", "stays", "after"}
    until(
        lambda: server.metric("jitney_requests_total", deployment="sleepy", outcome="cancelled") == 20,
        "cancelled requests are counted",
    )


def test_it_says_what_it_has_learned_and_why_each_batch_was_closed(serve: Serve) -> None:
    server = serve("sleepy.py", environment={"JITNEY_TEST_BASE_S": "0.005", "JITNEY_TEST_ITEM_S": "0"})
    for number in range(5):
        assert server.post("/sleepy", f"item-{number}").status == 200
    told = server.get("/config").json()["deployments"]["sleepy"]["batches"]
    assert told["batches_measured"] >= 5
    assert told["sizes"][0]["items"] == 1
    assert told["sizes"][0]["ms"] >= 5
    assert [batch["reason"] for batch in told["last_batches"][:5]] == ["eager"] * 5
    assert {(batch["items"], batch["left_waiting"], batch["held_ms"]) for batch in told["last_batches"][:5]} == {
        (1, 0, 0)
    }
    metrics = server.get("/metrics").body.decode()
    assert 'jitney_batches_total{deployment="sleepy",reason="returns"} 0' in metrics
    assert 0 < server.metric("jitney_launch_cost_seconds", deployment="sleepy") < 60
