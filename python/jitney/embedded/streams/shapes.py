"""Classes that answer in parts, as a type checker sees them."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, TypeVar

from jitney.types.steps import Step

I = TypeVar("I")  # noqa: E741 - an item
P = TypeVar("P")  # a part
P_co = TypeVar("P_co", covariant=True)
W = TypeVar("W")  # a whole answer
In_contra = TypeVar("In_contra", contravariant=True)


class YieldsBatch(Protocol[I, P, W]):
    """A class whose `predict` takes a list and yields what is new of each item."""

    def predict(self, items: list[I], /) -> "Iterator[list[Step[P, W]]]":
        """Take n items, yield n steps at a time."""
        ...


class YieldsOne(Protocol[In_contra, P_co, W]):
    """A class whose `predict` takes one item and yields what is new of it."""

    def predict(self, item: In_contra, /) -> "Iterator[Step[P_co, W]]":
        """Take an item, yield its steps."""
        ...


class YieldsLater(Protocol[In_contra, P_co, W]):
    """A class whose `predict` is an asynchronous generator of one item."""

    def predict(self, item: In_contra, /) -> "AsyncIterator[Step[P_co, W]]":
        """Take an item, yield its steps."""
        ...


class WorksInSteps(Protocol[I, P, W]):
    """A class with `admit` and `step` in place of `predict`."""

    def admit(self, items: list[I], /) -> object:
        """Take the items that join."""
        ...

    def step(self, states: Any, /) -> "list[Step[P, W]]":
        """Return what is new of each item."""
        ...
