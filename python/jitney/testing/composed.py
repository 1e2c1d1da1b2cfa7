"""Compositions without an engine: what the front does with the answers of one deployment and the items of the next."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NoReturn

from jitney.codecs import tags
from jitney.deployments.composed.composition import Composition
from jitney.embedded.values import FAILED, NAMED
from jitney.errors import BY_REASON, NOT_NOW, WorkerLost
from jitney.testing.engine import Raw

Items = list[tuple[int, Any]]
Begin = Callable[[Items, str | None], Future[list[Raw]]]
"""Begins to compute items of one request."""


class ComposedModel:
    """Computes the items of a composition by the models of its deployments."""

    def __init__(self, composition: Composition, models: Mapping[str, Begin]) -> None:
        self._composition: Final = composition
        self._models: Final = models

    def compute(self, items: Items, request_id: str | None) -> list[Raw]:
        """Compute the items of one request."""
        if self._composition.kind == "together":
            return self._together(items, request_id)
        return self._chain(items, request_id)

    def stream(self, item: tuple[int, Any], request_id: str | None) -> NoReturn:
        """Refuse: a composition answers once, and its handle has no stream."""
        raise TypeError("a composition answers once")

    def _together(self, items: Items, request_id: str | None) -> list[Raw]:
        begun = [
            (label, member.name, self._models[member.name](items, request_id))
            for label, member in self._composition.members
        ]
        answers = [(label, [_named(name, raw) for raw in future.result()]) for label, name, future in begun]
        return [_struct([(label, raws[place]) for label, raws in answers]) for place in range(len(items))]

    def _chain(self, items: Items, request_id: str | None) -> list[Raw]:
        first = self._composition.names[0]
        raws = [_named(first, raw) for raw in self._models[first](items, request_id).result()]
        for _, stage in self._composition.members[1:]:
            places = [place for place, raw in enumerate(raws) if raw[0] != FAILED]
            names = [spec.name for spec in stage.signature.input.arrays]
            made = [_item(raws[place], names) for place in places]
            if made:
                answers = self._models[stage.name](made, request_id).result()
                for place, answer in zip(places, answers, strict=True):
                    raws[place] = _named(stage.name, answer, is_made=True)
        return raws


def _struct(members: Sequence[tuple[str, Raw]]) -> Raw:
    parts: list[tuple[str, Raw]] = []
    for label, raw in members:
        if raw[0] == FAILED:
            return raw
        parts += [(f"{label}.{name}", one) for name, one in raw[1]] if raw[0] == NAMED else [(label, raw)]
    return NAMED, parts, None


def _item(raw: Raw, names: Sequence[str]) -> tuple[int, Any]:
    """Return an answer as the item of the next stage."""
    kind, data, _ = raw
    if kind not in (tags.TENSOR, NAMED):
        return kind, data
    arrays = [data] if kind == tags.TENSOR else [dict(data)[name][1] for name in names]
    return tags.TENSOR, [(array.dtype, array.shape, array) for array in arrays]


def _named(name: str, raw: Raw, *, is_made: bool = False) -> Raw:
    """Name the deployment of a failure. What a model made and another one refuses is not the client's fault."""
    if raw[0] != FAILED:
        return raw
    reason, detail, field, status, retry_after_s, request_id = raw[1]
    detail = f"{name}: {detail}"
    if is_made and not issubclass(BY_REASON[reason], (*NOT_NOW, WorkerLost)):
        reason, field, status, retry_after_s = "model_failed", None, None, None
    return FAILED, (reason, detail, field, status, retry_after_s, request_id), None
