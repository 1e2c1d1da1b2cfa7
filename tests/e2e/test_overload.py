"""Ten times the model's capacity: refused at admission, at once, with constant memory."""

from harness import Load, Reply, Serve, until


def test_overload_is_refused_with_a_time_to_come_back(serve: Serve) -> None:
    server = serve(
        "sleepy.py",
        arguments=("--set", "sleepy.max_batch_size=4", "--set", "sleepy.max_queued_items=16"),
        environment={"JITNEY_TEST_BASE_S": "0.05", "JITNEY_TEST_ITEM_S": "0"},
    )
    load = Load(server, "/sleepy", clients=120)
    until(lambda: load.answered > 2000, "the first 2000 answers")
    before = server.resident_bytes()
    load.wait_for(6000)
    load.stop()
    most = before + max(before // 20, 4 << 20)
    until(lambda: server.resident_bytes() <= most, f"memory is back at {most} bytes after 4000 more requests")
    assert not load.errors, load.errors[:3]
    served = {item: reply for item, reply in load.replies.items() if reply.status == 200}
    refused: dict[str, Reply] = {item: reply for item, reply in load.replies.items() if reply.status != 200}
    assert len(refused) > len(served)
    assert all(reply.json() == item[::-1] for item, reply in served.items())
    assert {reply.status for reply in refused.values()} == {429}
    reasons = {reply.reason for reply in refused.values()}
    assert "queue_full" in reasons and reasons <= {"queue_full", "wait_too_long"}
    assert all(1 <= int(reply.headers["retry-after"]) <= 30 for reply in refused.values())
    assert not set(server.computed()) & set(refused), "what is refused is not computed"
    assert server.post("/sleepy", "after").json() == "retfa"


def test_the_queue_is_bounded_by_count_exactly(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--set", "sleepy.max_queued_items=10"))
    answers = server.submit_held("/sleepy", [f"item-{n}" for n in range(10)])
    refused = server.post("/sleepy", "one too many")
    assert (refused.status, refused.reason) == (429, "queue_full")
    server.open_gate()
    assert all(answer.result().status == 200 for answer in answers)
    assert "one too many" not in server.computed()


def test_with_a_target_those_who_would_be_late_are_refused_and_the_others_are_served(serve: Serve) -> None:
    server = serve(
        "sleepy.py",
        arguments=("--set", "sleepy.max_batch_size=4", "--set", "sleepy.latency_target_ms=400"),
        environment={"JITNEY_TEST_BASE_S": "0.1", "JITNEY_TEST_ITEM_S": "0"},
    )
    load = Load(server, "/sleepy", clients=60)
    until(lambda: load.answered > 400, "the first 400 answers")
    load.stop()
    assert not load.errors, load.errors[:3]
    served = [item for item, reply in load.replies.items() if reply.status == 200]
    refused = {item: reply for item, reply in load.replies.items() if reply.status != 200}
    assert served
    assert {(reply.status, reply.reason) for reply in refused.values()} == {(429, "would_be_late")}
    assert all(1 <= int(reply.headers["retry-after"]) <= 30 for reply in refused.values())
    assert not set(server.computed()) & set(refused), "what is refused is not computed"
