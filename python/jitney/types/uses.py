"""What `jitney.uses` leaves in a class: the other deployments of the server that its `predict` calls."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from jitney.errors import JitneyError, TargetError


class Use:
    """An attribute of a class that is the model of another deployment, once the class is loaded in a worker."""

    def __init__(self, target: Any, name: str, *, waits: bool) -> None:
        self.target: Final = target
        """What is used, as the author of the class wrote it: a class, or the name of a deployment."""
        self.name: Final = name
        """The name of the deployment that is used."""
        self.waits: Final = waits
        """Whether a call waits for its answer on its thread; otherwise it is awaited."""
        self.attribute = ""
        self._model: object = None

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._model is None:
            kind = "" if owner is None else owner.__qualname__
            raise JitneyError(
                f"{kind}.{self.attribute} is the deployment {self.name!r} of a server, and this process serves none; "
                f"in a test give the instance one: model.{self.attribute} = ..."
            )
        return self._model

    def __call__(self, *_: object, **__: object) -> object:
        """Say where it belongs: only an attribute of the class becomes a model."""
        raise TargetError(_misplaced(self))

    def connect(self, asks: Any) -> None:
        """Make the model of it, whose calls go this way."""
        self._model = self.model(asks)

    def put(self, model: object) -> None:
        """Put something else in its place: for tests."""
        self._model = model

    def model(self, asks: Any) -> object:
        """Return the model of the deployment, called through this."""
        raise NotImplementedError


def uses_of(kind: object) -> Mapping[str, Use]:
    """Return what a class uses, by attribute; those of its bases come first."""
    if not isinstance(kind, type):
        return {}
    names = dict.fromkeys(name for each in reversed(kind.__mro__) for name in vars(each))
    found = {name: inspect.getattr_static(kind, name) for name in names}
    return {name: use for name, use in found.items() if isinstance(use, Use)}


def check_instance(model: object) -> None:
    """Refuse a use that the constructor has put into the instance: it never becomes a model."""
    for attribute, value in getattr(model, "__dict__", {}).items():
        if isinstance(value, Use):
            raise TargetError(f"{type(model).__qualname__}.{attribute}: {_misplaced(value)}")


def _misplaced(use: Use) -> str:
    call = "uses_sync" if use.waits else "uses"
    return (
        f"jitney.{call} is written in the class, not in `__init__` or in a function: "
        f"`{use.attribute or 'other'} = jitney.{call}(...)` under `class ...:`"
    )


def check_uses(kind: Any, name: str, *, is_async: bool) -> None:
    """Refuse a use that `predict` could not call, or that is of the class itself."""
    for attribute, use in uses_of(kind).items():
        where = f"{kind.__qualname__}.{attribute}"
        if use.name == name:
            raise TargetError(f"{where} uses the deployment {name!r} itself: it would wait for itself")
        if use.waits and is_async:
            raise TargetError(
                f"{where} is jitney.uses_sync, whose calls wait, and `predict` is `async def`: its event loop would "
                "stop; take jitney.uses and `await` the calls"
            )
        if not use.waits and not is_async:
            raise TargetError(
                f"{where} is jitney.uses, whose calls are awaited, and `predict` is not `async def`: take "
                "jitney.uses_sync, whose calls wait, or write `async def predict`"
            )
