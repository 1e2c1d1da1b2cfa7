"""Tests with several machines, which are network namespaces of this one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from namespaces import Machine, Machines, Network, why_not
from wire import Wire

HERE = Path(__file__).parent
# What the tests of agents on one machine use, these use too.
sys.path.append(str(HERE.parent / "e2e"))

from cluster import Clusters, cluster_of, wants_long_tests  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes, because a lease is as long")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    reason = why_not() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.timeout(240))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif item.get_closest_marker("long") and not wants_long_tests():
            item.add_marker(pytest.mark.skip(reason="takes minutes: set JITNEY_TEST_LONG=1 to run it"))


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Makes machines that reach each other; whatever runs on them is killed at the end."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(Network(count)).machines


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    """Makes clusters; the test acts on the front's machine."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(cluster_of(tmp_path, count))


@pytest.fixture
def wires() -> Iterator[Callable[[Machine, Machine], Wire]]:
    """Makes wires between machines."""
    with ExitStack() as stack:
        made: list[Wire] = []

        def make(one: Machine, two: Machine) -> Wire:
            made.append(stack.enter_context(Wire(one, two, len(made))))
            return made[-1]

        yield make
