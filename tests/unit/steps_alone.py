"""Steps of a model as a worker makes them, in this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jitney


@dataclass
class Answer:
    """What a model said of an item."""

    parts: list[Any] = field(default_factory=list[Any])
    end: Any = None


def run(model: Any, items: Sequence[Any], joins: Mapping[int, int] | None = None) -> list[Answer]:
    """Step until all items have ended. `joins` says at which step an item joins; the others join at the first."""
    answers = [Answer() for _ in items]
    active: dict[int, Any] = {}
    step = 0
    while any(answer.end is None for answer in answers):
        new = [index for index in range(len(items)) if (joins or {}).get(index, 0) == step]
        states: list[Any] = model.admit([items[index] for index in new]) if new else []
        for index, state in zip(new, states, strict=True):
            if isinstance(state, Exception):
                answers[index].end = state
            else:
                active[index] = state
        outcomes: list[Any] = model.step(list(active.values())) if active else []
        for index, said in zip(list(active), outcomes, strict=True):
            answer = answers[index]
            if isinstance(said, (jitney.End, Exception)):
                answer.end = said
                del active[index]
            elif said is not None:
                answer.parts.append(said)
        step += 1
    return answers
