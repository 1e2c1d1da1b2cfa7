"""Machines fail while clients wait. Each request gets its own answer, none is lost, and no item is suspected for it."""

import os
import signal
from typing import TYPE_CHECKING

import pytest
from cluster import Traffic, assert_nobody_suspected, computed_again, lost, ready
from conftest import Clusters

if TYPE_CHECKING:
    from tests.e2e.harness import until
else:
    from harness import until

MOST_HELD = 32
"""Items that a worker may have: a batch that runs, and one that was sent ahead."""


def test_a_machine_is_killed_under_load_and_its_items_run_elsewhere(clusters: Clusters) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=4)
    one, _ = (cluster.join(machine, "--places", "2") for machine in cluster.others)
    server.wait_ready()
    assert len(one.workers()) == 2
    load = Traffic(server)
    load.wait_for(200)
    cluster.others[0].kill()
    until(lambda: ready(server) == 2, "the machine that was killed has no replica any more")
    load.wait_for(200)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == lost(server, "away") == 2
    assert computed_again(server) <= 2 * MOST_HELD


def test_an_agent_is_killed_and_its_workers_end_with_it(clusters: Clusters) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=2)
    one, two = (cluster.join(machine) for machine in cluster.others)
    server.wait_ready()
    (worker,) = one.workers()
    load = Traffic(server)
    load.wait_for(100)
    os.kill(one.process.pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{worker}"), "its worker has ended")
    load.wait_for(100)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == 1
    assert len(two.workers()) == 1


def test_a_short_cut_loses_no_worker_and_what_was_on_its_way_is_given_to_others(clusters: Clusters) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=2)
    agents = [cluster.join(machine) for machine in cluster.others]
    server.wait_ready()
    workers = [agent.workers() for agent in agents]
    load = Traffic(server)
    load.wait_for(200)
    cluster.others[0].unplug()
    until(lambda: "is silent, and gets nothing new" in server.log(), "the front notices the silence")
    load.wait_for(200)
    cluster.others[0].plug()
    until(lambda: "its worker is heard again" in server.log(), "the worker is heard again")
    load.wait_for(200)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == 0
    assert [agent.workers() for agent in agents] == workers
    assert 1 <= server.metric("jitney_hedged_items_total") <= MOST_HELD
    assert computed_again(server) <= MOST_HELD


def test_a_machine_falls_silent_under_load_and_nobody_waits_for_its_loss(clusters: Clusters) -> None:
    cluster = clusters(4)
    server = cluster.serve(replicas=3)
    for machine in cluster.others:
        cluster.join(machine)
    server.wait_ready()
    load = Traffic(server)
    load.wait_for(200)
    begin = load.took[-1][0]
    cluster.others[0].unplug()
    until(lambda: lost(server, "away"), "the machine is given up")
    load.lasts(3)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == 1
    assert 1 <= server.metric("jitney_hedged_items_total") <= MOST_HELD
    print(f"p99 {load.longest_s(begin, 0.99):.3f} s, longest {load.longest_s(begin):.2f} s")
    assert load.longest_s(begin) < 7, "no client waited until the silence made it a loss"


def test_all_machines_are_replaced_one_by_one_under_load(clusters: Clusters) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=2)
    running = [cluster.join(machine) for machine in cluster.others]
    server.wait_ready()
    load = Traffic(server)
    for machine, agent in zip(cluster.others, running, strict=True):
        load.wait_for(100)
        assert agent.terminate() == 0
        cluster.join(machine)
        until(lambda: ready(server) == 2, "both replicas are ready")
    load.wait_for(100)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == lost(server, "left") == 2
    assert set(server.computed().values()) == {1}


def test_a_machine_ten_times_slower_answers_right(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=2)
    cluster.join(cluster.others[0])
    monkeypatch.setenv("JITNEY_TEST_BASE_S", "0.05")
    slow = cluster.join(cluster.others[1])
    server.wait_ready()
    load = Traffic(server)
    load.wait_for(1000)
    load.finish()
    assert_nobody_suspected(server)
    assert lost(server) == 0
    (worker,) = slow.workers()
    assert sum(len(call.items) for call in server.calls() if call.pid == worker) > 0
    assert set(server.computed().values()) == {1}
