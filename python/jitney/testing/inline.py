"""Deployments without an engine: the worker's own steps, in one thread of this process."""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from jitney.codecs import Codec, tags
from jitney.config.layers import Overrides, Resolved, resolve
from jitney.context import enter, leave
from jitney.deployments.classes import deployment_of
from jitney.deployments.composed.composition import Composed, ComposedDeployment
from jitney.deployments.deployment import Deployment
from jitney.deployments.manifest import manifest
from jitney.deployments.model import LoadedModel, RunsCoroutines
from jitney.deployments.targets import load_target
from jitney.devices import choose_device
from jitney.embedded.handles import SyncModels
from jitney.embedded.values import ENDED, FAILED
from jitney.errors import NotFound
from jitney.testing.composed import Begin, ComposedModel
from jitney.testing.engine import Entrance, PythonEngine, Raw, UsedModels
from jitney.testing.streams import Event, PartEvents, arrays, encoded
from jitney.testing.tensors import Tensor
from jitney.worker.health import Health
from jitney.worker.process import replica_class, side_by_side

_NUMBERS: Final = itertools.count(1)


@contextmanager
def inline(
    *targets: str | Callable[..., Any] | Composed, options: Mapping[str, object] | None = None
) -> Generator[SyncModels]:
    """Load these deployments in this process, and give their models: `with jitney.testing.inline(Embedder) as models`.

    There are no processes, no queue, no deadlines and no policy: a call is a batch of one, and `many` makes batches of
    up to `max_batch_size`. Items and answers are encoded, decoded and validated as between processes, and errors are
    what a caller gets. All models run on one thread, unless one uses others (`jitney.uses`): then each has its own. A
    stream computes its whole answer before its first part. Targets and `options` are as for `jitney.run`.
    """
    overrides = Overrides()
    for key, value in (options or {}).items():
        overrides.give(key, value)
    found = [deployment for target in targets for deployment in _deployments(target)]
    if unknown := overrides.unknown_names(deployment.name for deployment in found):
        raise NotFound("; ".join(unknown))
    pairs = [(each, resolve(each.name, each.declared, overrides, each.init)) for each in found]
    described = manifest("test", pairs)["deployments"]
    # A model that waits for another must not hold the thread of the other.
    apart = any(deployment.uses or isinstance(deployment, ComposedDeployment) for deployment in found)
    with ExitStack() as stack:
        shared = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="jitney-inline"))
        threads = {each.name: stack.enter_context(ThreadPoolExecutor(1)) if apart else shared for each in found}
        models: dict[str, _Model] = {}
        try:
            for deployment, resolved in pairs:
                if isinstance(deployment, ComposedDeployment):
                    continue
                models[deployment.name] = threads[deployment.name].submit(_Model, deployment, resolved).result()
            entrances = {
                name: Entrance(method.compute, threads[owner], method.stream)
                for owner, model in models.items()
                for name, method in model.methods.items()
            }
            entrances |= _composed(found, threads, entrances)
            manifests = {one["name"]: one for one in described}
            engine = PythonEngine(entrances, manifests)
            for use in [use for deployment in found for use in deployment.uses.values()]:
                use.connect(UsedModels(entrances, manifests))
            yield SyncModels(cast("Any", engine))
        finally:
            for name, model in models.items():
                threads[name].submit(model.close).result()


def _composed(
    found: Sequence[Deployment], threads: Mapping[str, ThreadPoolExecutor], entrances: Mapping[str, Entrance]
) -> dict[str, Entrance]:
    """Return the ways in to what the front would carry out."""
    made: dict[str, Entrance] = {}

    def begin(owner: str, name: str) -> Begin:
        entrance = made.get(name) or entrances.get(name)
        if entrance is None:
            raise NotFound(f"{owner} calls {name}, which is not here: give it to jitney.testing.inline too")
        return entrance.begin

    # One may call another, which stands above it in its file or in the list.
    for deployment in sorted(found, key=_depth):
        if isinstance(deployment, ComposedDeployment):
            names = deployment.composition.names
            model = ComposedModel(deployment.composition, {name: begin(deployment.name, name) for name in names})
            made[deployment.name] = Entrance(model.compute, threads[deployment.name], model.stream)
    return made


def _depth(deployment: Deployment) -> int:
    """Return through how many compositions the items of this one go."""
    if not isinstance(deployment, ComposedDeployment):
        return 0
    return 1 + max(_depth(member) for _, member in deployment.composition.members)


def _deployments(target: str | Callable[..., Any] | Composed) -> list[Deployment]:
    return load_target(target) if isinstance(target, str) else [deployment_of(target)]


class _Model:
    """One loaded deployment."""

    def __init__(self, deployment: Deployment, resolved: Resolved) -> None:
        start = partial(enter, deployment.name, 0, choose_device(next(iter(resolved.options.devices), None), 0))
        start()
        try:
            codecs = [Codec(each.signature, resolved.options) for each in deployment.served]
            model = deployment.load(resolved.init)
        finally:
            leave()
        self._close = model.close
        self.methods = {
            each.name: _Method(each, resolved, codec, model.of(each.function_name), start)
            for each, codec in zip(deployment.served, codecs, strict=True)
        }

    def close(self) -> None:
        """Close the model."""
        if self._close is not None:
            self._close()


class _Method:
    """One method of a loaded deployment, and the worker's steps around it."""

    def __init__(
        self, deployment: Deployment, resolved: Resolved, codec: Codec, model: LoadedModel, start: Callable[[], None]
    ) -> None:
        self._enter = start
        self._name = deployment.method or ""
        self._options = resolved.options
        self._health = Health()
        self._coroutines = None if resolved.options.batched else model.coroutines
        self._replica = replica_class(codec)(
            cast("Any", _Link()),
            model.predict,
            codec,
            resolved.options,
            cast("Any", self._results_of),
            coroutines=model.coroutines,
            method=deployment.function_name,
            health=self._health,
        )
        # The front alone can say which items may share a batch.
        may_share = not deployment.group_by and all(
            not spec.is_stacked or (spec.shape is not None and None not in spec.shape)
            for spec in deployment.signature.input.arrays
        )
        is_together = resolved.options.batched or model.coroutines is not None
        self._most = resolved.options.max_batch_size if may_share and is_together else 1

    def compute(self, items: list[tuple[int, Any]], request_id: str | None) -> list[Raw]:
        """Compute the items of one request, in batches."""
        self._enter()
        try:
            batches = [items[start : start + self._most] for start in range(0, len(items), self._most)]
            return [raw for batch in batches for raw in self._batch(_Batch(batch, request_id or "", self._name))]
        finally:
            leave()

    def stream(self, item: tuple[int, Any], request_id: str | None) -> Iterator[Event]:
        """Compute the whole answer to one item, and yield its parts and its end."""
        batch = _Batch([item], request_id or "", self._name, streams=True)
        self._enter()
        try:
            self._batch(batch)
        finally:
            leave()
        yield from batch.results.events(0, batch.request_id)

    def _batch(self, batch: "_Batch") -> list[Raw]:
        if self._coroutines is not None:
            self._side_by_side(self._coroutines, batch)
        else:
            state = self._replica.decode(cast("Any", batch))
            self._replica.predict(state)
            self._replica.finish(state)
        if batch.is_stream:
            return []
        return [batch.results.raw(index, batch.request_id) for index in range(len(batch))]

    def _side_by_side(self, coroutines: RunsCoroutines, batch: "_Batch") -> None:
        side_by_side(
            _OneBatch(batch), coroutines, {"": self._replica}, self._options.batch_timeout_s, self._health, None
        ).run()

    @staticmethod
    def _results_of(batch: "_Batch", max_answer_bytes: int) -> "_Results":
        batch.results = _Results(max_answer_bytes)
        return batch.results


class _Link:
    """Stands for the link: results stay where they are."""

    def started(self, batch: object) -> None:
        """Do nothing."""

    def send_results(self, results: object, predict_s: float = 0.0) -> None:
        """Do nothing."""

    def finish(self, results: object, *durations: object) -> None:
        """Do nothing."""

    def paused(self) -> list[int]:
        """Return that no item is paused."""
        return []

    def changes(self) -> int:
        """Return that nothing has changed."""
        return 0


class _OneBatch(_Link):
    """Stands for the link to a front that sends some items and no more."""

    def __init__(self, batch: "_Batch") -> None:
        self._batch: Final = batch

    def take(self) -> "tuple[_Batch, bool]":
        """Return the items, and that no more may come."""
        return self._batch, False

    def send_step(self, *step: object) -> None:
        """Do nothing."""


class _Input(bytearray):
    """An array of an item, which `predict` may write to: its bytes, with dtype and shape."""

    def __init__(self, dtype: str, shape: Sequence[int], data: Any) -> None:
        super().__init__(data.tobytes() if hasattr(data, "tobytes") else data)
        self.dtype, self.shape, self.stacked = dtype, tuple(shape), False


class _Batch:
    """A batch as the worker receives it."""

    def __init__(self, items: list[tuple[int, Any]], request_id: str, method: str, *, streams: bool = False) -> None:
        self._items = items
        self.is_stream = streams
        self.request_id = request_id
        self.method = method
        self.ids = [next(_NUMBERS) for _ in items]
        self.tags = [tag for tag, _ in items]
        self.encodings = [tags.MSGPACK] * len(items)
        self.request_ids = [request_id] * len(items)
        self.streams = [streams] * len(items)
        self.has_left_out = False
        self.results = _Results(0)
        self.trace = ""

    def __len__(self) -> int:
        return len(self._items)

    def wanted(self) -> list[bool]:
        """Return that the caller waits for all."""
        return [True] * len(self._items)

    def cancelled(self) -> list[bool]:
        """Return that the caller has cancelled none."""
        return [False] * len(self._items)

    def values(self) -> list[Any]:
        """Return texts, and what else there is as bytes."""
        return [data if isinstance(data, str) else bytes(data) for _, data in self._items]

    def tensors(self, param: int) -> list[_Input]:
        """Return copies of the arrays of one parameter."""
        return [_Input(*data[param]) for _, data in self._items]

    def restore(self, indices: Sequence[int]) -> None:
        """Do nothing: arrays are read anew, from the call's own."""

    def metadata(self) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
        """Return the id of the call for each item."""
        return [(self.request_id, "", "", [])] * len(self._items)


@dataclass
class _Results:
    """The outcome of each item, as a caller's reader takes it."""

    most_bytes: int
    _values: dict[int, Raw] = field(default_factory=dict[int, Raw])
    _rows: dict[int, dict[str, Tensor]] = field(default_factory=dict[int, dict[str, Tensor]])
    _errors: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    _parts: PartEvents = field(default_factory=PartEvents)
    _ends: dict[int, tuple[str, tuple[int, int] | None]] = field(
        default_factory=dict[int, tuple[str, tuple[int, int] | None]]
    )

    def parts(self) -> PartEvents:
        """Return where parts are written."""
        return self._parts

    def too_large(self) -> list[int]:
        """Return no item: without an engine answers have no limit."""
        return []

    def end(self, index: int, reason: str, usage: tuple[int, int] | None = None) -> None:
        """Take the end of an answer in parts. Callers that take no parts do not get it."""
        self._ends[index] = (reason, usage)

    def events(self, index: int, request_id: str) -> Iterator[Event]:
        """Yield the parts of an item and its end."""
        yield from self._parts.of(index)
        if index in self._errors:
            yield self.raw(index, request_id)
            return
        whole = self.raw(index, request_id) if index in self._values or index in self._rows else None
        reason, usage = self._ends.get(index, ("stop", None))
        yield (ENDED, (reason, usage, whole), None)

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """Take encoded values."""
        for index, value in zip(indices, data, strict=True):
            self._values[index] = encoded(tag, value, media_type)

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        """Take rows of an array."""
        for index, row in zip(indices, data, strict=True):
            self._rows.setdefault(index, {})[name] = Tensor.of(dtype, row_shape, row.tobytes())

    def error(self, index: int, *verdict: Any) -> None:
        """Take a failure; it replaces what was written of the item."""
        self._errors[index] = (*verdict, *[None] * (5 - len(verdict)))

    def raw(self, index: int, request_id: str) -> Raw:
        """Return the outcome of an item."""
        if index in self._errors:
            return (FAILED, (*self._errors[index], request_id), None)
        if index in self._values:
            return self._values[index]
        return arrays(self._rows[index])
