"""Workers of other machines that are silent for a while: clients do not wait for them. All on loopback."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import Agents, agents_in, listening
from harness import Load, Serve, until

TWO = ("--set", "sleepy.replicas=2", "--set", "sleepy.max_batch_size=16")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with agents_in(tmp_path) as started:
        yield started


def test_items_of_a_silent_worker_run_elsewhere_and_it_is_not_lost(serve: Serve, agents: Agents) -> None:
    server = serve("sleepy.py", arguments=listening(agents.secret, *TWO), wait=False)
    running = [agents.start(server), agents.start(server)]
    server.wait_ready()
    (worker,) = running[0].workers()
    load = Load(server, "/sleepy", clients=16)
    load.wait_for(100)
    os.kill(worker, signal.SIGSTOP)
    until(lambda: "its worker is silent, and gets nothing new" in server.log(), "the front notices the silence")
    load.wait_for(100)
    os.kill(worker, signal.SIGCONT)
    until(lambda: "its worker is heard again" in server.log(), "the worker is heard again")
    computed = len(server.calls())
    until(lambda: any(call.pid == worker for call in server.calls()[computed:]), "it gets items again")
    load.stop()
    load.assert_all_right()
    assert server.metric("jitney_workers_lost_total") == 0
    assert server.metric("jitney_hedged_items_total") >= 1
    assert server.metric("jitney_batches_total", reason="suspect") == 0
