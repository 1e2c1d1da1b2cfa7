"""Where a replica runs, and how many cores it may use."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jitney.context import (
    Context,
    available_cores,
    computing,
    context,
    cpu_threads,
    enter,
    leave,
    request_id,
    share_cores,
)
from jitney.errors import JitneyError


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    leave()


def cgroup(root: Path, lines: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": lines, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_context_outside_a_worker_is_refused() -> None:
    with pytest.raises(JitneyError, match="inside a worker"):
        context()


def test_context_names_the_replica_and_the_items_of_the_call() -> None:
    enter("embed", 3, "cuda:1")
    assert context() == Context("embed", 3, "cuda:1", ())
    computing([7, 9])
    assert context().ids == (7, 9)


def test_a_worker_answers_its_share_and_never_less_than_one() -> None:
    share_cores(5)
    assert cpu_threads() == 5
    share_cores(0)
    assert cpu_threads() == 1


def test_outside_a_worker_threads_are_the_available_cores() -> None:
    assert cpu_threads() == available_cores() >= 1


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("lines", "files", "cores"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 2),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 1),
        ("0::/gone\n", {"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        (
            "4:cpu,cpuacct:/box\n0::/\n",
            {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "400000", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpu:/\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, 8),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "garbage"}, 8),
    ],
)
def test_a_quota_bounds_the_cores(tmp_path: Path, lines: str, files: dict[str, str], cores: int) -> None:
    assert available_cores(cgroup(tmp_path, lines, files)) == cores


@pytest.mark.usefixtures("eight_cores")
def test_without_cgroups_affinity_decides(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == 8


def test_the_request_of_a_batch_is_known_if_all_items_are_of_one() -> None:
    assert request_id() is None
    for ids, expected in ((["a"], "a"), (["a", "a"], "a"), (["a", "b"], None), ([""], None)):
        batch: Any = SimpleNamespace(request_ids=ids)
        computing(range(len(ids)), batch, range(len(ids)))
        assert request_id() == expected
    computing([2], SimpleNamespace(request_ids=["a", "b"]), [1])  # pyright: ignore[reportArgumentType]
    assert request_id() == "b"
    computing(())
    assert request_id() is None
