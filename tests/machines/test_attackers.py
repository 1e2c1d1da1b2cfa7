"""Unknown programs at the port for workers, next to an honest worker that gets in and keeps working."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import PORT, Clusters, Traffic, assert_nobody_suspected, lost

if TYPE_CHECKING:
    from tests.e2e.agents import write_secret
    from tests.e2e.harness import until
else:
    from agents import write_secret
    from harness import until

STRANGERS = 1000
GARBAGE = (b"\x16\x03\x01\x40\x00" + b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40)


def specification_of(worker: int) -> dict[str, str]:
    """What the agent gave a worker, its token included, as programs that may read its environment see it."""
    variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    (found,) = (value for name, _, value in (one.partition(b"=") for one in variables) if name == b"JITNEY_WORKER_SPEC")
    return json.loads(found)


def test_strangers_keep_no_honest_worker_out_and_get_nothing(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(3)
    stranger, honest = cluster.others
    server = cluster.serve(2)
    with stranger.inside():
        silent = [socket.create_connection((cluster.front.address, PORT), timeout=30) for _ in range(STRANGERS)]
        agents = [cluster.join(honest)]
        for garbage in GARBAGE:
            with socket.create_connection((cluster.front.address, PORT), timeout=30) as liar:
                liar.sendall(garbage)
    until(agents[0].workers, "the honest agent has got in")
    (tmp_path / "other").mkdir()
    false_agent = cluster.join(stranger, secret=write_secret(tmp_path / "other", "o" * 40))
    agents.append(cluster.join(honest))
    server.wait_ready()
    load = Traffic(server)
    load.wait_for(100)
    # A worker's token is good for one connection, and it was used.
    specification = specification_of(agents[0].workers()[0])
    environment = {**os.environ, "JITNEY_WORKER_SPEC": json.dumps(specification), "PYTHONPATH": "."}
    with stranger.inside():
        replay = subprocess.run(
            [sys.executable, "-m", "jitney.worker"], env=environment, capture_output=True, timeout=60, check=False
        )
    assert replay.returncode != 0
    load.wait_for(100)
    load.finish()
    load.tell("unknown programs", 0)
    assert_nobody_suspected(server)
    assert (lost(server), server.metric("jitney_ready_replicas")) == (0, 2)
    assert false_agent.workers() == []
    assert server.log().count(stranger.address) <= 5, "a line for a minute and an address"
    for connection in silent:
        connection.close()
