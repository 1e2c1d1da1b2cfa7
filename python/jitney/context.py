"""What a model may ask about the place it runs in: its deployment, its device, its share of the cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from jitney.errors import JitneyError


@dataclass(frozen=True, slots=True)
class Context:
    """Where a replica runs, and what it is computing."""

    deployment: str
    replica: int
    device: str | None
    ids: tuple[int, ...]
    """Ids of the items that the running call of `predict` was given, in its order; empty between calls."""


# One worker hosts one replica and predicts one batch at a time, so plain module state is right, and threads that
# the model starts see it too.
_current: Context | None = None
_ids: Sequence[int] = ()
_own_ids: ContextVar[Sequence[int] | None] = ContextVar("jitney_ids", default=None)
"""The items of the coroutine that runs, where several calls of `predict` run at the same time."""
_cpu_threads: int | None = None


def context() -> Context:
    """Return where this code runs; only a worker knows."""
    if _current is None:
        raise JitneyError("jitney.context() is known only inside a worker: call it in `__init__` or in `predict`")
    own = _own_ids.get()
    return replace(_current, ids=tuple(_ids if own is None else own))


def cpu_threads() -> int:
    """Return how many threads this worker should compute with: its fair share of the cores."""
    return available_cores() if _cpu_threads is None else _cpu_threads


def enter(deployment: str, replica: int, device: str | None) -> None:
    """Become this replica."""
    global _current  # noqa: PLW0603 - the one place of a process-wide fact
    _current = Context(deployment, replica, device, ())


def leave() -> None:
    """Stop being a replica."""
    global _current, _ids, _cpu_threads
    _current, _ids, _cpu_threads = None, (), None


def computing(ids: Sequence[int]) -> None:
    """Note the items that `predict` is about to get."""
    global _ids  # noqa: PLW0603 - see above
    _ids = ids


def computing_alone(ids: Sequence[int]) -> None:
    """Note the items that `predict` is about to get in this task of an event loop; other tasks have their own."""
    _own_ids.set(ids)


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
