"""Tests with a real Ray cluster. `make ci-ray` installs Ray and runs them; elsewhere they are skipped."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for further in ("e2e", "machines", "docs"):
    sys.path.append(str(HERE.parent / further))

from harness import Server, until  # noqa: E402
from namespaces import Network, why_not  # noqa: E402
from nodes import QUIET, Nodes  # noqa: E402
from watching import PLACED, Start, actors, installed_ray, provider  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    reason = _why_not() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.timeout(170))
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_not() -> str:
    return "" if find_spec("ray") else "Ray is not installed here: `make ci-ray` runs these tests"


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """The cluster. The tests run on the machine of its head."""
    if reason := why_not():
        pytest.skip(reason)
    os.environ.update(QUIET)
    ray = installed_ray()
    with Network(3) as network, ExitStack() as stack:
        cluster = Nodes(network.machines)
        stack.callback(cluster.close)
        cluster.start()
        stack.enter_context(network.machines[0].inside())
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        stack.callback(ray.shutdown)
        yield cluster


@pytest.fixture
def start(nodes: Nodes, tmp_path: Path) -> Iterator[Start]:
    """Starts servers whose replicas run in the cluster. When they have ended, no actor of theirs is left."""
    servers: list[Server] = []
    before = actors()

    def begin(*arguments: str, targets: tuple[str, ...] = (PLACED,), wait: bool = True) -> Server:
        server = Server(tmp_path, targets, ("--ray-address", nodes.address, *arguments), {})
        servers.append(server)
        return server.wait_ready() if wait else server

    yield begin
    for server in servers:
        server.finish()
    until(lambda: set(actors()) <= set(before), "no actor is left after the end of the front", 10)


@pytest.fixture(scope="session")
def orphans(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Actors whose front and provider were killed at once, at the beginning of all tests."""
    arguments = ("--ray-address", nodes.address, "--resources", "m1=1")  # m2 is killed by a test
    server = Server(tmp_path_factory.mktemp("orphans"), [PLACED], arguments, {}).wait_ready()
    left = actors()
    for process in (server.process.pid, *provider(server)):
        os.kill(process, signal.SIGKILL)
    server.process.wait()
    return left
