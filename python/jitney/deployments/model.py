"""A model that is loaded: what a worker calls of it, also where its functions are `async def`."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from jitney.errors import DeadlineExceeded, InvalidOutput
from jitney.types.steps import End, Later, counted

if TYPE_CHECKING:
    import asyncio

Value = TypeVar("Value")


class Abandoned(DeadlineExceeded):
    """No request waits for the answer of a coroutine any more, so the coroutine was cancelled."""

    def __init__(self) -> None:
        super().__init__("no request waits for this answer any more")


class RunsCoroutines(Protocol):
    """The event loop of a model whose `predict` is `async def`: `coroutines.Coroutines`, which loads `asyncio`."""

    predict: Callable[..., Any] | None
    """A coroutine function, or an asynchronous generator."""

    @property
    def loop(self) -> "asyncio.AbstractEventLoop":
        """The event loop itself."""
        ...

    def one(self, call: Callable[[], Awaitable[Any]], is_wanted: Callable[[], bool]) -> Any:
        """Return what one call returns, or raise what it raises."""

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run the event loop until this coroutine has ended."""
        ...


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """What a worker calls of a model that works in steps."""

    admit: Callable[..., Any]
    """Takes items as `predict` would, and returns a state for each, an exception, or `jitney.LATER`."""
    step: Callable[[list[Any]], Any]
    """Takes states, and returns for each what is new: a part, None, `jitney.End` or an exception."""
    release: Callable[[list[Any]], object] | None = None
    """Takes states that are needed no more."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a worker calls of a model that is loaded. Each function returns its result, also where it is `async def`."""

    predict: Callable[..., Any]
    close: Callable[[], object] | None = None
    """The model's own `close`, called when its worker ends in order."""
    check: Callable[[], object] | None = None
    """The model's own `check`, called now and then while no batch runs."""
    coroutines: RunsCoroutines | None = None
    """The event loop of a model whose `predict` is `async def`."""
    steps: StepFunctions | None = None
    """Of a model that works in steps; `predict` then is a generator that runs them for one batch."""
    methods: "Mapping[str, LoadedModel]" = field(default_factory=dict[str, "LoadedModel"])
    """What `@jitney.method` marked, by name."""

    def of(self, method: str) -> "LoadedModel":
        """Return one method of the model."""
        return self.methods.get(method, self)


def is_async(function: object) -> bool:
    """Whether calling this gives a coroutine or an asynchronous generator."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def step_functions(model: Any) -> StepFunctions:
    """Return what is called of a model that has `admit` and `step`."""
    return StepFunctions(model.admit, model.step, getattr(model, "release", None))


def as_generator(functions: StepFunctions) -> Callable[..., Iterator[list[Any]]]:
    """Return a generator function that admits the items of a batch, and steps until all have ended.

    It is for warm-up, checks and tests, where no item joins later.
    """

    def predict(*arguments: Any) -> Iterator[list[Any]]:
        waiting, has_room = list(range(len(arguments[0]))), True
        count, states = len(waiting), dict[int, Any]()
        try:
            while waiting or states:
                said: dict[int, Any] = {}
                if waiting and has_room:
                    some = [_some(argument, waiting) for argument in arguments]
                    found = counted(functions.admit(*some), len(waiting), "admit returned", "states")
                    admitted = dict(zip(waiting, found, strict=True))
                    waiting = [place for place, state in admitted.items() if isinstance(state, Later)]
                    said = {place: state for place, state in admitted.items() if isinstance(state, BaseException)}
                    states |= {place: admitted[place] for place in admitted.keys() - said.keys() - set(waiting)}
                    if waiting and not states:
                        raise InvalidOutput(
                            "admit returned jitney.LATER while the model held no item: none would ever fit"
                        )
                places = sorted(states)
                if places:
                    outcomes = functions.step([states[place] for place in places])
                    said |= zip(places, counted(outcomes, len(places), "step returned"), strict=True)
                ended = [place for place in places if isinstance(said[place], (End, BaseException))]
                _release(functions, [states.pop(place) for place in ended])
                has_room = bool(ended)
                yield [said.get(place) for place in range(count)]
        finally:
            _release(functions, list(states.values()))

    return predict


def _some(argument: Any, places: list[int]) -> Any:
    """Return these items of a list, or these rows of an array."""
    return [argument[place] for place in places] if isinstance(argument, list) else argument[places]


def _release(functions: StepFunctions, states: list[Any]) -> None:
    if functions.release is not None and states:
        functions.release(states)
