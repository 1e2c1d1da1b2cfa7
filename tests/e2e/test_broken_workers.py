"""A worker whose model can compute nothing any more is replaced; clients lose one batch at most."""

from pathlib import Path

import pytest
from harness import Load, Serve, until

TWO = ("--set", "example.replicas=2", "--set", "bare.replicas=2")


def test_one_of_two_replicas_breaks_and_does_not_draw_the_traffic(serve: Serve) -> None:
    server = serve("breaking.py", arguments=TWO)
    load = Load(server, "/example", clients=8)
    load.wait_for(100)
    assert server.post("/example", "corrupt").status == 500
    until(lambda: server.metric("jitney_workers_lost_total", deployment="example", cause="broken") == 1, "it is found")
    until(lambda: server.metric("jitney_ready_replicas", deployment="example") == 2, "it is replaced")
    load.wait_for(100)
    load.stop()
    failed = [reply for reply in load.replies.values() if reply.status != 200]
    assert len(failed) <= 8, "those that shared the batch of the item that broke it"
    assert {reply.reason for reply in failed} <= {"model_failed"}
    # The log is written a moment later.
    until(lambda: "worker lost (broken): the model fails for an input that it" in server.log(), "the log says why")


@pytest.mark.parametrize(("deployment", "item"), [("example", "cuda"), ("bare", "cuda"), ("bare", "licence")])
def test_an_error_that_no_later_call_survives_costs_nobody_else_an_answer(
    serve: Serve, deployment: str, item: str
) -> None:
    server = serve("breaking.py", arguments=TWO)
    load = Load(server, f"/{deployment}", clients=8)
    load.wait_for(100)
    convicted = server.post(f"/{deployment}", item)
    assert (convicted.status, convicted.reason) == (502, "worker_lost")
    assert server.post(f"/{deployment}", item).reason == "quarantined"
    load.wait_for(100)
    load.stop()
    load.assert_all_right()
    assert server.metric("jitney_workers_lost_total", deployment=deployment, cause="broken") == 2
    until(lambda: server.metric("jitney_ready_replicas", deployment=deployment) == 2, "both are replaced")
    calls = [call for call in server.calls() if item in call.items]
    assert len(calls) == 2, "in its batch and alone, and not in parts of the batch"


def test_a_deployment_whose_workers_all_break_is_not_ready_until_one_computes_again(
    serve: Serve, tmp_path: Path
) -> None:
    down = tmp_path / "down"
    server = serve("breaking.py", environment={"JITNEY_TEST_DOWN": str(down)})
    assert server.post("/bare", "hello").status == 200
    down.touch()
    numbers = iter(range(1_000))
    until(lambda: server.post("/bare", f"item-{next(numbers)}").reason == "crash_looping", "it is a crash loop")
    assert server.get("/readyz").status == 503
    down.unlink()
    until(server.is_ready, "it is ready again")
    assert server.post("/bare", "hello").json() == "olleh"


def test_an_idle_worker_whose_check_fails_is_replaced(serve: Serve) -> None:
    server = serve("checked.py")
    assert server.post("/checked", "abc").json() == "cba"
    until(lambda: len({call.pid for call in server.calls("check")}) == 1 and len(server.calls("check")) > 1, "checks")
    server.shut_gate()
    until(lambda: server.metric("jitney_workers_lost_total", cause="broken") >= 1, "the worker is replaced")
    server.open_gate()
    server.wait_ready()
    assert server.post("/checked", "def").json() == "fed"
    assert len({call.pid for call in server.calls()}) == 2
    until(
        lambda: "worker lost (broken): the model's check raised OSError: the database is away" in server.log(),
        "the cause",
    )
