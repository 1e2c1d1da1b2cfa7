"""A replica that becomes ten times slower gets little, is named, and is back when it is fast again."""

from pathlib import Path

from harness import Load, Serve, until


def test_a_slow_replica_is_named_gets_little_and_is_back_when_it_recovers(serve: Serve, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    server = serve("uneven.py", environment={"JITNEY_TEST_SLOW_FILE": str(slow)})

    def speed() -> float:
        return server.metric("jitney_replica_speed", deployment="uneven", replica="1")

    load = Load(server, "/uneven", 6)
    until(lambda: speed() == 1.0, "both are known to be equal")
    slow.touch()
    until(lambda: "uneven/1: slow: its batches take" in server.log(), "the slow one is named")
    assert speed() < 0.25
    told = server.get("/config").json()["deployments"]["uneven"]["batches"]["unequal_replicas"]
    assert [one["replica"] for one in told] == [1]
    before = load.replies.copy()
    load.wait_for(500)
    later = [reply.json() for item, reply in load.replies.copy().items() if item not in before]
    by_slow = sum(answer.startswith("1:") for answer in later)
    assert by_slow <= len(later) / 5, f"{by_slow} of {len(later)}"
    slow.unlink()
    until(lambda: speed() == 1.0, "it is believed to be fast again")
    load.stop()
    assert not load.errors
    assert all(reply.json().split(":", 1)[1] == item for item, reply in load.replies.items())
