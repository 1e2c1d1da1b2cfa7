"""A model that works in steps as a generator of one batch: for warm-up, checks and tests, where no item joins later."""

from collections.abc import Callable, Iterator
from typing import Any

from jitney.deployments.model import StepFunctions
from jitney.errors import InvalidOutput
from jitney.types.steps import LATER, End


def step_functions(model: Any) -> StepFunctions:
    """Return what is called of a model that has `admit` and `step`."""
    return StepFunctions(model.admit, model.step, getattr(model, "release", None))


def as_generator(functions: StepFunctions) -> Callable[..., Iterator[list[Any]]]:
    """Return a generator function that admits the items of a batch, and steps until all have ended."""

    def predict(*arguments: Any) -> Iterator[list[Any]]:
        admitted = list(functions.admit(*arguments))
        if any(state is LATER for state in admitted):
            raise InvalidOutput("admit returned jitney.LATER while the model held no item: then no item would ever fit")
        states = {place: state for place, state in enumerate(admitted) if not isinstance(state, BaseException)}
        yield [state if isinstance(state, BaseException) else None for state in admitted]
        try:
            while states:
                places = list(states)
                outcomes = functions.step([states[place] for place in places])
                said = dict(zip(places, outcomes, strict=True))
                for place, outcome in said.items():
                    if isinstance(outcome, (End, BaseException)):
                        _release(functions, [states.pop(place)])
                yield [said.get(place) for place in range(len(admitted))]
        finally:
            _release(functions, list(states.values()))

    return predict


def _release(functions: StepFunctions, states: list[Any]) -> None:
    if functions.release is not None and states:
        functions.release(states)
