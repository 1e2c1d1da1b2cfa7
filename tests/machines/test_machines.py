"""Machines fail while clients wait. Each request gets its own answer, none is lost, and no item is suspected for it."""

import os
import signal
from typing import TYPE_CHECKING

import pytest
from cluster import Cluster, Clusters, Traffic, assert_nobody_suspected, computed_again, loads, lost, ready

if TYPE_CHECKING:
    from tests.e2e.agents import Agent
    from tests.e2e.harness import Server, until
else:
    from agents import Agent
    from harness import Server, until

SILENT_AFTER_S = 7
"""A silence of this length is a loss."""
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
    begin = load.took[-1][0]
    cluster.others[0].kill()
    until(lambda: ready(server) == 2, "the machine that was killed has no replica any more")
    load.wait_for(200)
    load.finish()
    load.tell("kill -9 of a machine with 2 of 4 workers", begin)
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
    begin = load.took[-1][0]
    os.kill(one.process.pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{worker}"), "its worker has ended")
    load.wait_for(100)
    load.finish()
    load.tell("kill -9 of an agent", begin)
    assert_nobody_suspected(server)
    assert lost(server) == 1
    assert len(two.workers()) == 1


def test_a_short_cut_loses_no_worker_and_what_was_on_its_way_is_given_to_others(clusters: Clusters) -> None:
    cluster = clusters(3)
    server, agents, load = one_worker_each(cluster)
    workers = [agent.workers() for agent in agents]
    begin = load.took[-1][0]
    cluster.others[0].unplug()
    until(lambda: "is silent, and gets nothing new" in server.log(), "the front notices the silence")
    load.wait_for(200)
    cluster.others[0].plug()
    until(lambda: "its worker is heard again" in server.log(), "the worker is heard again")
    load.wait_for(200)
    load.finish()
    load.tell("cut until the front notices", begin)
    assert_nobody_suspected(server)
    assert lost(server) == 0
    assert [agent.workers() for agent in agents] == workers
    assert 1 <= server.metric("jitney_hedged_items_total") <= MOST_HELD
    assert computed_again(server) <= MOST_HELD


def test_a_machine_falls_silent_under_load_and_nobody_waits_for_its_loss(clusters: Clusters) -> None:
    cluster = clusters(4)
    server, agents, load = one_worker_each(cluster)
    workers = [agent.workers() for agent in agents]
    begin = load.took[-1][0]
    cluster.others[0].unplug()
    until(lambda: lost(server, "away"), "the machine is given up")
    load.wait_for(200)
    load.tell("silence", begin)
    assert load.longest_s(begin) < SILENT_AFTER_S, "no client waited until the silence was a loss"
    assert 1 <= server.metric("jitney_hedged_items_total") <= MOST_HELD
    cluster.others[0].plug()
    until(lambda: ready(server) == 3, "the machine is back")
    load.wait_for(200)
    load.finish()
    assert_nobody_suspected(server)
    assert (lost(server), loads(server)) == (1, 3)
    assert [agent.workers() for agent in agents] == workers
    assert computed_again(server) <= MOST_HELD


@pytest.mark.long
def test_a_cut_of_five_seconds_loses_no_worker(clusters: Clusters) -> None:
    server, load = cut_one_of_two(clusters(3), 5)
    load.finish()
    assert_nobody_suspected(server)
    assert (lost(server), loads(server)) == (0, 2)


@pytest.mark.long
def test_a_worker_is_back_with_its_model_after_a_cut_of_thirty_seconds(clusters: Clusters) -> None:
    server, load = cut_one_of_two(clusters(3), 30)
    load.finish()
    assert_nobody_suspected(server)
    assert (lost(server), lost(server, "away"), loads(server)) == (1, 1, 2)


@pytest.mark.long
def test_a_worker_whose_lease_is_over_has_ended_and_another_machine_has_its_place(clusters: Clusters) -> None:
    cluster = clusters(3)
    server = cluster.serve(replicas=2)
    gone = cluster.join(cluster.others[0])
    other = cluster.join(cluster.others[1])
    server.wait_ready()
    (worker,) = gone.workers()
    load = Traffic(server)
    load.wait_for(200)
    begin = load.took[-1][0]
    cluster.others[0].unplug()
    cluster.join(cluster.others[1])
    until(lambda: ready(server) == 1, "the machine is given up")
    until(lambda: ready(server) == 2, "another machine has its replica", 90)
    until(lambda: not os.path.exists(f"/proc/{worker}"), "the worker has ended with its lease", 30)
    load.wait_for(200)
    load.tell("silence of more than a lease", begin)
    cluster.others[0].plug()
    until(lambda: server.log().count("an agent has joined") == 4, "the machine is there again")
    load.wait_for(200)
    load.finish()
    assert_nobody_suspected(server)
    assert (lost(server), lost(server, "away"), loads(server)) == (1, 1, 3)
    assert len(other.workers()) == 1


def one_worker_each(cluster: Cluster) -> tuple[Server, list[Agent], Traffic]:
    """A server, its agents on all other machines, with one worker each, and load that has begun."""
    server = cluster.serve(replicas=len(cluster.others))
    agents = [cluster.join(machine) for machine in cluster.others]
    server.wait_ready()
    load = Traffic(server)
    load.wait_for(200)
    return server, agents, load


def cut_one_of_two(cluster: Cluster, seconds: float) -> tuple[Server, Traffic]:
    """Two machines with a worker each, and load; one is cut off for so long, and works again when this returns."""
    server, agents, load = one_worker_each(cluster)
    workers = [agent.workers() for agent in agents]
    begin = load.took[-1][0]
    cluster.others[0].unplug()
    load.lasts(seconds)
    cluster.others[0].plug()
    computed = len([call for call in server.calls() if call.pid in workers[0]])
    until(lambda: len([call for call in server.calls() if call.pid in workers[0]]) > computed + 10, "it works again")
    load.tell(f"cut of {seconds:.0f} s", begin)
    assert [agent.workers() for agent in agents] == workers
    return server, load


def test_a_front_that_is_killed_and_started_again_has_its_workers_back(clusters: Clusters) -> None:
    cluster = clusters(3)
    first, agents, load = one_worker_each(cluster)
    workers = [agent.workers() for agent in agents]
    first.process.kill()
    load.stop()
    load.assert_own_answers()
    second = cluster.serve(replicas=2)
    until(lambda: second.is_ready() and ready(second) == 2, "the workers are back")
    load = Traffic(second)
    load.wait_for(200)
    load.finish()
    assert_nobody_suspected(second)
    assert [agent.workers() for agent in agents] == workers
    assert (lost(second), loads(first)) == (0, 2)


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
    load.tell("every machine replaced", 0)
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
    load.tell("a machine ten times slower", 0)
    assert_nobody_suspected(server)
    assert lost(server) == 0
    (worker,) = slow.workers()
    assert sum(len(call.items) for call in server.calls() if call.pid == worker) > 0
    assert set(server.computed().values()) == {1}
