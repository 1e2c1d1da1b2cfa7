"""A Ray cluster of three machines, with a model on it: by jitney, and by Ray Serve."""

import os
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import servers
from scenarios import BODY, JSON
from servers import HERE, Running

from scale import ray_serve
from scale.places import Front, Machine, Network

sys.path.append(str(HERE.parent / "tests" / "ray_cluster"))

import nodes
from nodes import QUIET, Nodes

OURS, RAY, FAST = "jitney on Ray", ray_serve.DEFAULTS, ray_serve.FAST
OUR_PYTHON = HERE.parent / ".venv-ray" / "bin" / "python"
"""jitney and Ray (`make ray-packages`)."""
START_S = 300
PATH = "/slow_batches"


def why_not(variant: str) -> str:
    """Say why a variant cannot be measured; empty if it can."""
    if variant == OURS:
        return "" if OUR_PYTHON.with_name("ray").exists() else "Ray is not installed (make ray-packages)"
    return ray_serve.why_not()


class Served:
    """A model with replicas on the two nodes of a cluster, and its front on the head."""

    def __init__(self, running: Running, machines: list[Machine]) -> None:
        self.running = running
        self.machines = machines

    def running_on(self) -> AbstractContextManager[None]:
        """Within this block the calling thread, and what it starts, is on the machine of the front."""
        return self.machines[0].inside()

    def memory_mb(self) -> float:
        """Memory of all processes on all machines (RSS, added)."""
        return servers.memory_mb(process for machine in self.machines for process in machine.processes())


@contextmanager
def serving(variant: str, replicas: int, batch_s: float) -> Generator[Served]:
    """Serve a model that sleeps `batch_s` for each batch of up to 8 items, with so many replicas."""
    python = OUR_PYTHON if variant == OURS else ray_serve.python()
    own = {"BENCH_BATCH_S": str(batch_s), "BENCH_REPLICAS": str(replicas)}
    environment = {**QUIET, **ray_serve.settings(variant), **own}
    nodes.RAY = python.with_name("ray")
    with Network(3) as network, _set(environment):
        cluster = Nodes(network.machines)
        try:
            cluster.start()
            running = _start(variant, python, replicas, cluster)
            try:
                yield Served(running, network.machines)
            finally:
                running.stop()
        finally:
            cluster.close()


@contextmanager
def _set(environment: Mapping[str, str]) -> Generator[None]:
    """Nodes pass their environment on to what runs on them."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start(variant: str, python: Path, replicas: int, cluster: Nodes) -> Running:
    head = cluster.machines["head"]
    if variant != OURS:
        port = servers.free_port()
        command = [str(python), str(ray_serve.APPS / "ray_replicas.py"), cluster.address, str(port)]
        with head.inside():
            running = Running(variant, command, port, PATH, {})
            running.wait_ready(BODY.encode(), JSON, START_S)
        return running
    options = {"backend": "ray", "replicas": replicas, "num_cpus": 0.1}
    sets = [part for name, value in options.items() for part in ("--set", f"slow_batches.{name}={value}")]
    app = str(HERE / "apps" / "slow_batches.py")
    front = Front(head, PATH, [str(python), "-m", "jitney", "serve", app, "--ray-address", cluster.address, *sets], {})
    front.wait(START_S)
    return front


def ready_after(served: Served, replicas: int) -> None:
    """Wait until Ray Serve has all replicas: it answers when it has one."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        alive = sum(b"SlowBatches" in _title(process) for one in served.machines for process in one.processes())
        if alive >= replicas:
            return
        time.sleep(0.5)
    raise RuntimeError(f"Ray Serve did not start {replicas} replicas within {START_S} s")


def _title(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
