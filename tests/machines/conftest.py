"""Tests with several machines, which are network namespaces of this one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from namespaces import Machine, Network, why_not
from wire import Wire

Machines = Callable[[int], list[Machine]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    reason = why_not() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.timeout(240))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Makes machines that reach each other; whatever runs on them is killed at the end."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(Network(count)).machines


@pytest.fixture
def wires() -> Iterator[Callable[[Machine, Machine], Wire]]:
    """Makes wires between machines."""
    with ExitStack() as stack:
        made: list[Wire] = []

        def make(one: Machine, two: Machine) -> Wire:
            made.append(stack.enter_context(Wire(one, two, len(made))))
            return made[-1]

        yield make
