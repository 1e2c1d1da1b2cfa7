"""A server on the first machine and agents on the others, as users start them, under load whose answers are checked."""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from namespaces import Machine, Network

if TYPE_CHECKING:
    from tests.e2e.agents import Agent, Agents, listening
    from tests.e2e.harness import APPS, Load, Server, until
else:
    from agents import Agent, Agents, listening
    from harness import APPS, Load, Server, until

PORT = 7070
"""Agents and workers connect to this port of the front's machine."""
SLEEPY = ("--set", "sleepy.max_batch_size=16")


class Cluster:
    """The machines, and what runs on them. The calling thread is on the front's machine."""

    def __init__(self, folder: Path, machines: list[Machine]) -> None:
        self.front, *self.others = machines
        self._folder = folder
        self._agents = Agents(folder)
        self.secret = self._agents.secret
        self.servers: list[Server] = []

    def serve(self, replicas: int, *more: str, environment: Mapping[str, str] | None = None) -> Server:
        """Start a server whose replicas wait for agents."""
        address = f"tcp:0.0.0.0:{PORT}"
        arguments = listening(self.secret, "--set", f"sleepy.replicas={replicas}", *SLEEPY, *more, address=address)
        server = Server(self._folder, [str(APPS / "sleepy.py")], arguments, environment or {})
        self.servers.append(server)
        until(lambda: "agents join at" in server.log(), "the server says where agents join")
        return server

    def join(self, machine: Machine, *more: str, address: str | None = None, secret: Path | None = None) -> Agent:
        """Start an agent on a machine."""
        with machine.inside():
            return self._agents.start(
                self.servers[-1], *more, address=f"tcp:{address or self.front.address}:{PORT}", secret=secret
            )

    def end(self) -> None:
        # With its agents the server ends at once, and would wait for their workers without them.
        for server in self.servers:
            if server.process.poll() is None:
                server.terminate()
                server.wait_exit()
        self._agents.end()
        for server in self.servers:
            server.finish()


Clusters = Callable[[int], Cluster]
"""Makes a cluster of so many machines."""


@contextmanager
def cluster_of(folder: Path, count: int) -> Generator[Cluster]:
    """A cluster of so many machines, the front's included."""
    with ExitStack() as stack:
        machines = stack.enter_context(Network(count)).machines
        stack.enter_context(machines[0].inside())
        cluster = Cluster(folder, machines)
        stack.callback(cluster.end)
        yield cluster


class Traffic(Load):
    """Load on `sleepy` that knows how long each answer took."""

    def __init__(self, server: Server, clients: int = 16, prefix: str = "load") -> None:
        self.took: list[tuple[float, float]] = []
        """When each answer came, and how long it took, in seconds."""
        super().__init__(server, "/sleepy", clients, prefix)

    def _run(self, name: str) -> None:
        count = 0
        with self._server.client() as client:
            while not self._is_stopping:
                item = f"{name}-{count}"
                count += 1
                begin = time.monotonic()
                try:
                    self.replies[item] = client.post(self._path, item)
                except (OSError, HTTPException) as error:
                    self.errors.append(f"{item}: {error!r}")
                    return
                self.took.append((time.monotonic(), time.monotonic() - begin))

    def longest_s(self, begin: float, share: float = 1.0) -> float:
        """The longest time of the answers that came since `begin`, or the quantile of this share."""
        took = sorted(seconds for at, seconds in self.took if at >= begin)
        return took[min(len(took) - 1, int(share * len(took)))]

    def lasts(self, seconds: float) -> None:
        """Let it go on for so long: the length of a failure is part of what a test is about."""
        end = time.monotonic() + seconds
        until(lambda: time.monotonic() >= end or self.errors, f"{seconds} s of load", seconds + 10)

    def tell(self, what: str, since: float) -> None:
        """Print what clients saw since then, and what was computed more than once; `-s` shows it."""
        server = self._server
        again, hedged = computed_again(server), int(server.metric("jitney_hedged_items_total"))
        answers = sum(1 for at, _ in self.took if at >= since)
        p99, longest = self.longest_s(since, 0.99), self.longest_s(since)
        print(
            f"{what}: {answers} answers, p99 {p99:.3f} s, longest {longest:.2f} s; computed twice: {again}, as copies: "
            f"{hedged}; workers lost: {lost(server)}, loads: {loads(server)}"
        )

    def assert_own_answers(self) -> None:
        """Each answer that came is that of its request."""
        assert all(reply.json() == item[::-1] for item, reply in self.replies.items() if reply.status == 200)

    def finish(self) -> None:
        self.stop()
        self.assert_all_right()


def assert_nobody_suspected(server: Server) -> None:
    """No item was taken for the cause of a loss, and none was refused or failed for one."""
    assert server.metric("jitney_batches_total", reason="suspect") == 0
    for outcome in ("quarantined", "worker_lost", "crash_looping"):
        assert server.metric("jitney_requests_total", outcome=outcome) == 0


def lost(server: Server, *causes: str) -> int:
    """Workers that were lost for these causes; of none, for any."""
    if not causes:
        return int(server.metric("jitney_workers_lost_total"))
    return int(sum(server.metric("jitney_workers_lost_total", cause=cause) for cause in causes))


def ready(server: Server) -> int:
    return int(server.metric("jitney_ready_replicas"))


def loads(server: Server) -> int:
    """How often a worker of its agents loaded the model."""
    return len(server.calls("load"))


def computed_again(server: Server) -> int:
    """Items that were given to a model more than once."""
    return sum(1 for count in server.computed().values() if count > 1)


def wants_long_tests() -> bool:
    return os.environ.get("JITNEY_TEST_LONG") == "1"
