"""What a model may ask about the place it runs in: its deployment, its device, its share of the cores."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jitney.errors import JitneyError

if TYPE_CHECKING:
    from jitney._core import Batch


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """What the request of an item says in addition to its input."""

    id: str
    """The request's id, as clients and logs have it (`x-request-id`); empty without one."""
    trace: str
    """The trace context (`traceparent`); empty without one."""
    key_name: str
    """The name of the API key that was used; empty for a key without a name, and without keys."""
    headers: Mapping[str, str]
    """The headers that the option `context_headers` names, as far as the request has them; names in lower case."""
    trace_state: str = ""
    """The `tracestate` of the same request; empty without one."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where a replica runs, and what it is computing."""

    deployment: str
    replica: int
    device: str | None
    ids: tuple[int, ...]
    """Ids of the items that the running call of `predict` was given, in its order; empty between calls."""
    _batch: Any = field(default=None, repr=False, compare=False)
    _indices: Sequence[int] = field(default=(), repr=False, compare=False)

    @property
    def method(self) -> str:
        """The name of the served method that computes these items, such as `predict`; empty between calls."""
        return "" if self._batch is None else str(self._batch.method) or "predict"

    @property
    def requests(self) -> tuple[RequestMetadata, ...]:
        """The metadata of the request of each of these items, in the same order; read when asked for."""
        if self._batch is None:
            return ()
        found = self._batch.metadata()
        return tuple(_request(*found[index]) for index in self._indices)

    @property
    def traceparent(self) -> str:
        """The trace context for spans of this call of `predict`; empty if nothing is traced.

        Items of one request have that of the request. For items of several requests it is that of their batch, whose
        trace links to theirs. If the server makes no traces, it is what the client sent.
        """
        traces = {request.trace for request in self.requests}
        return traces.pop() if len(traces) == 1 else "" if self._batch is None else str(self._batch.trace)


def _request(request_id: str, trace: str, key_name: str, headers: Sequence[tuple[str, str]]) -> RequestMetadata:
    parent, _, state = trace.partition("\n")
    return RequestMetadata(request_id, parent, key_name, dict(headers), state)


_Running = tuple[Sequence[int], Any, Sequence[int]]
"""Ids of items, their batch, and their places in it."""
_NOTHING: Final[_Running] = ((), None, ())

# One worker hosts one replica and predicts one batch at a time, so plain module state is right, and threads that
# the model starts see it too.
_current: Context | None = None
_running: _Running = _NOTHING


class _Process:
    """What is known about this process as a whole."""

    computes = False
    """Whether `predict` was called in it: in any other process no call of a model has the id of an item."""


PROCESS: Final = _Process()
_own: ContextVar[_Running | None] = ContextVar("jitney_running", default=None)
"""The items of the coroutine that runs, where several calls of `predict` run at the same time."""
_cpu_threads: int | None = None


def context() -> Context:
    """Return where this code runs; only a worker knows."""
    if _current is None:
        raise JitneyError("jitney.context() is known only inside a worker: call it in `__init__` or in `predict`")
    ids, batch, indices = _own.get() or _running
    return replace(_current, ids=tuple(ids), _batch=batch, _indices=indices)


def request_id() -> str | None:
    """Return the id of the request whose items the running call of `predict` was given; None if they are of several.

    A call that a model makes to another model has this id, so that the logs of both have one id.
    """
    _, batch, indices = _own.get() or _running
    if batch is None:
        return None
    request_ids: list[str] = batch.request_ids
    found = {request_ids[index] for index in indices}
    return (found.pop() or None) if len(found) == 1 else None


def items() -> "tuple[Sequence[int], Batch | None]":
    """Return the ids of the items that the caller computes, and their batch; none outside of `predict`."""
    ids, batch, _ = _own.get() or _running
    return ids, batch


def cpu_threads() -> int:
    """Return how many threads this worker should compute with: its fair share of the cores."""
    return available_cores() if _cpu_threads is None else _cpu_threads


def enter(deployment: str, replica: int, device: str | None) -> None:
    """Become this replica."""
    global _current  # noqa: PLW0603 - the one place of a process-wide fact
    _current = Context(deployment, replica, device, ())


def leave() -> None:
    """Stop being a replica."""
    global _current, _running, _cpu_threads
    _current, _running, _cpu_threads = None, _NOTHING, None


def computing(ids: Sequence[int], batch: "Batch | None" = None, indices: Sequence[int] = ()) -> None:
    """Note the items that `predict` is about to get: their ids, and their places in the batch."""
    global _running  # noqa: PLW0603 - see above
    _running = (ids, batch, indices)
    PROCESS.computes = True


def computing_alone(ids: Sequence[int], batch: "Batch", indices: Sequence[int]) -> None:
    """Note the items that `predict` is about to get in this task of an event loop; other tasks have their own."""
    PROCESS.computes = True
    _own.set((ids, batch, indices))


def share_cores(threads: int) -> None:
    """Set what `cpu_threads` answers."""
    global _cpu_threads  # noqa: PLW0603
    _cpu_threads = max(1, threads)


def available_cores(root: Path = Path("/")) -> int:
    """Count the cores this process may use: affinity and cgroup quota, not what the machine has.

    A quota of 2.5 cores counts as 2: a third thread would make the kernel stop all of them now and then.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([float(allowed), *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _walk(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            yield from _walk(root / "sys/fs/cgroup/cpu", path, _quota_v1)


def _walk(mount: Path, path: str, quota: Callable[[Path], float | None]) -> Iterator[float]:
    """Ask the group and everything above it: the tightest bound counts. In a container the path may not exist."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        try:
            found = quota(folder)
        except (OSError, ValueError):
            found = None
        if found is not None:
            yield found
        if folder == mount:
            return


def _quota_v2(folder: Path) -> float | None:
    limit, period = (folder / "cpu.max").read_text().split()
    return None if limit == "max" else int(limit) / int(period)


def _quota_v1(folder: Path) -> float | None:
    limit = int((folder / "cpu.cfs_quota_us").read_text())
    return None if limit <= 0 else limit / int((folder / "cpu.cfs_period_us").read_text())
