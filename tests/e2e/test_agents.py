"""Workers of other machines: agents join a server, and its replicas run there. All on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import Agents, address_of, agents_in, listening
from harness import Load, Serve, until

TWO = ("--set", "sleepy.replicas=2", "--set", "sleepy.max_batch_size=16")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with agents_in(tmp_path) as started:
        yield started


def test_a_server_without_local_workers_waits_for_an_agent_and_is_served_by_it(serve: Serve, agents: Agents) -> None:
    server = serve("printing.py", arguments=listening(agents.secret), wait=False)
    address_of(server)
    reasons = until(lambda: server.get("/readyz").json()["reasons"][1:], "the server says what it waits for")
    assert reasons == ["a worker waits for a place: no agent has joined"]
    agent = agents.start(server)
    server.wait_ready()
    assert len(agent.workers()) == 1
    assert not server.workers()
    assert agent.terminate() == 0
    until(lambda: server.get("/readyz").status == 503, "the server has no replica any more")
    (reason,) = server.get("/readyz").json()["reasons"]
    assert reason.endswith("0 of 1 replicas are ready: waits for a place: no agent has joined")


def test_all_agents_are_replaced_under_load_and_nothing_is_lost(serve: Serve, agents: Agents) -> None:
    server = serve("sleepy.py", arguments=listening(agents.secret, *TWO), wait=False)
    running = [agents.start(server), agents.start(server)]
    server.wait_ready()
    load = Load(server, "/sleepy", clients=16)
    for agent in running:
        load.wait_for(100)
        agents.start(server)
        assert agent.terminate() == 0
        until(lambda: server.metric("jitney_ready_replicas", deployment="sleepy") == 2, "both replicas are ready")
    load.wait_for(100)
    load.stop()
    load.assert_all_right()
    assert server.metric("jitney_workers_lost_total", deployment="sleepy", cause="left") == 2
    assert set(server.computed().values()) == {1}
