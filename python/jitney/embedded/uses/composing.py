"""`jitney.chain` and `jitney.together`: deployments that the front makes of others."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from jitney.deployments.classes import deployment_of
from jitney.deployments.composed.composition import OPTIONS, Composed, Composition
from jitney.errors import ConfigError, TargetError

Stage = Callable[..., Any] | Composed
"""A class or function with `@jitney.deployment`, or what `jitney.configure`, `chain` and `together` return."""


def chain(*stages: Stage, name: str | None = None, **options: Any) -> Composed:
    """Return a deployment whose items pass through these, one after the other: `Search = jitney.chain(Detect, Embed)`.

    The answer of each is the item of the next. The front carries it out: no model, no worker and no Python is needed
    for it, and each stage makes its own batches. Its name is that of the variable, here `search`, or `name`. What a
    stage returns must be what the next one takes. `options` are `route`, `task`, `request_timeout_s`,
    `max_queued_items`, `context_headers` and `openai_names`.
    """
    if len(stages) < 2:
        raise TargetError(f"jitney.chain takes two or more deployments, not {len(stages)}: jitney.chain(Detect, Embed)")
    return _composed("chain", [("", stage) for stage in stages], name, options)


def together(
    *unnamed: Stage, name: str | None = None, options: Mapping[str, Any] | None = None, **members: Stage
) -> Composed:
    """Return a deployment that gives each item to several at once: `Both = jitney.together(cats=Cats, dogs=Dogs)`.

    The answer has those of all by their names: {"cats": ..., "dogs": ...}. The front carries it out, and the bytes of
    the item are not copied. All take the same; if one fails, the request fails. Its name is that of the variable, or
    `name`; `options` are those of `chain`.
    """
    if unnamed or not members:
        raise TargetError("jitney.together takes deployments by name, as in jitney.together(cats=Cats, dogs=Dogs)")
    return _composed("together", list(members.items()), name, options or {})


def _composed(
    kind: Literal["chain", "together"],
    stages: Sequence[tuple[str, Stage]],
    name: str | None,
    options: Mapping[str, Any],
) -> Composed:
    known = ("route", "task", *OPTIONS)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"jitney.{kind}: there is no option {option!r} for what the front carries out; it has name, "
                f"{', '.join(known)}. Replicas and batches are those of its deployments"
            )
    members: list[tuple[str, Any]] = []
    for label, stage in stages:
        if isinstance(stage, str):
            raise TargetError(f"jitney.{kind} takes classes and functions, not the name {stage!r}: import the class")
        members.append((label, deployment_of(stage)))
    module = sys._getframe(2).f_globals["__name__"]  # pyright: ignore[reportPrivateUsage]
    return Composed(Composition(kind, members), name, options, module)
