"""Deployments without a model: the front sends their items on to others. `jitney.chain` and `jitney.together`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from jitney.config.layers import Resolved
from jitney.config.names import snake_case
from jitney.deployments.composed.joining import chained, side_by_side
from jitney.deployments.deployment import Deployment
from jitney.errors import ConfigError, TargetError
from jitney.signature.annotations import Signature

OPTIONS: Final = ("request_timeout_s", "max_queued_items", "context_headers", "openai_names")
"""Options that have a meaning for what has no replicas and no batches."""


@dataclass(frozen=True)
class Composition:
    """Which deployments the front calls: one after the other, or all at once under these names."""

    kind: Literal["chain", "together"]
    members: Sequence[tuple[str, Deployment]]

    @property
    def names(self) -> list[str]:
        """The names of the deployments, in order."""
        return [member.name for _, member in self.members]

    def to_dict(self) -> dict[str, object]:
        """Return it as the manifest has it."""
        if self.kind == "chain":
            return {"kind": self.kind, "stages": self.names}
        return {"kind": self.kind, "members": [[label, member.name] for label, member in self.members]}

    def sentence(self) -> str:
        """Say it in words."""
        if self.kind == "chain":
            return ", then ".join(self.names)
        *others, last = self.names
        return f"{', '.join(others)} and {last} at once" if others else last


class ComposedDeployment(Deployment):
    """A deployment that the front carries out with others."""

    def __init__(self, name: str, composition: Composition, options: Mapping[str, Any], module: str) -> None:
        members = [member for _, member in composition.members]
        described = {
            "name": name,
            "batched": all(member.declared.get("batched", True) for member in members),
            "examples": members[0].examples,
        }
        super().__init__(_stub(composition), {**options, **described})
        self.module = module
        self.composition: Final = composition
        for member in members:
            if member.methods:
                raise TargetError(
                    f"jitney.{composition.kind} `{name}`: {member.name} serves several methods, and only a deployment "
                    "with `predict` alone can be in it; call the method in an `async def predict` with jitney.uses"
                )

    @cached_property
    def signature(self) -> Signature:
        """What it takes and returns. TargetError if its deployments do not fit together."""
        where = f"jitney.{self.composition.kind} `{self.name}`"
        read = [(label, member.name, member.signature) for label, member in self.composition.members]
        return chained(where, read) if self.composition.kind == "chain" else side_by_side(where, read)

    def check_options(self, resolved: Resolved) -> None:
        """Refuse options for replicas and batches, wherever they are set."""
        for option, source in resolved.sources.items():
            if source != "default" and option not in (*OPTIONS, "batched"):
                names = ", ".join(self.composition.names)
                raise ConfigError(
                    f"{resolved.places[option]}: {option} is for a deployment with a model, and the front carries "
                    f"`{self.name}` out: set it for {names}. `{self.name}` has {', '.join(OPTIONS)}"
                )


class Composed:
    """What `jitney.chain` and `jitney.together` return. It stands at the top level of a module, as a class does."""

    def __init__(self, composition: Composition, name: str | None, options: Mapping[str, Any], module: str) -> None:
        self._composition: Final = composition
        self._name: Final = name
        self._options: Final = options
        self.module: Final = module

    @cached_property
    def deployment(self) -> ComposedDeployment:
        """The deployment, whose name is that of the variable unless another one was given."""
        name = self._name or self._name_of_variable()
        return ComposedDeployment(name, self._composition, self._options, self.module)

    def _name_of_variable(self) -> str:
        module = sys.modules.get(self.module)
        known = vars(module) if module is not None else {}
        variable = next((name for name, value in known.items() if value is self), None)
        if variable is None:
            what = f"jitney.{self._composition.kind}(...)"
            raise TargetError(
                f"{what} has no name: write `Name = {what}` at the top level of a module before something uses it, or "
                "name=..."
            )
        return snake_case(variable)

    def __repr__(self) -> str:
        return f"<jitney.{self._composition.kind} of {self._composition.sentence()}>"


def _stub(composition: Composition) -> Callable[..., Any]:
    """Return the function that the base class asks for. Nothing calls it."""

    def carried_out(item: object) -> object:
        raise TargetError("the front carries this deployment out; no worker runs it")

    carried_out.__qualname__ = carried_out.__name__ = f"jitney.{composition.kind}"
    carried_out.__doc__ = f"{composition.sentence()}."
    return carried_out
