"""Links between machines that delay, lose and cut packets: each request gets its own answer.

Wires come before clusters among the arguments of a test: they are there until the server has ended.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from cluster import Cluster, Clusters, Traffic, assert_nobody_suspected, loads, lost, ready
from namespaces import Machine
from wire import Wire

if TYPE_CHECKING:
    from tests.e2e.harness import Server, until
else:
    from harness import Server, until

Wires = Callable[[Machine, Machine], Wire]


def behind_a_wire(cluster: Cluster, wires: Wires, *more: str) -> tuple[Server, Wire]:
    """A server with one worker nearby and one behind a wire."""
    near, far = cluster.others
    wire = wires(cluster.front, far)
    server = cluster.serve(2, *more)
    cluster.join(near)
    cluster.join(far, address=wire.near)
    return server.wait_ready(), wire


def test_a_worker_that_is_200_ms_away_is_not_taken_for_silent(wires: Wires, clusters: Clusters) -> None:
    cluster = clusters(2)
    wire = wires(cluster.front, cluster.others[0])
    wire.delay(100)
    server = cluster.serve(1)
    cluster.join(cluster.others[0], address=wire.near)
    server.wait_ready()
    load = Traffic(server)
    load.wait_for(150)
    load.finish()
    load.tell("200 ms away", 0)
    assert "is silent" not in server.log()
    assert_nobody_suspected(server)
    assert (lost(server), server.metric("jitney_hedged_items_total")) == (0, 0)
    assert set(server.computed().values()) == {1}


def test_a_link_that_loses_packets_slows_answers_down_and_loses_none(wires: Wires, clusters: Clusters) -> None:
    cluster = clusters(3)
    server, wire = behind_a_wire(cluster, wires)
    wire.delay(10)
    wire.lose(0.02)
    load = Traffic(server)
    load.wait_for(1000)
    load.finish()
    load.tell("20 ms away and 2 % loss", 0)
    assert_nobody_suspected(server)
    assert lost(server) == 0


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_link_that_is_cut_one_way_is_found_and_works_again(wires: Wires, clusters: Clusters, way: str) -> None:
    cluster = clusters(3)
    server, wire = behind_a_wire(cluster, wires)
    load = Traffic(server)
    load.wait_for(200)
    begin = load.took[-1][0]
    wire.cut(way)
    until(lambda: lost(server, "away"), "the worker behind the wire is given up")
    load.wait_for(200)
    wire.join()
    until(lambda: ready(server) == 2, "the worker behind the wire is back")
    load.wait_for(200)
    load.finish()
    load.tell(f"cut {way}", begin)
    assert_nobody_suspected(server)
    assert (lost(server), loads(server)) == (1, 2)
