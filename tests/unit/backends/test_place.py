"""What an actor starts, and the words for what it waits for."""

from pathlib import Path
from typing import Any

import pytest
from jitney.backends.ray.pending import STARTING, why_pending
from jitney.backends.ray.place import command, environment

ORDER: dict[str, Any] = {
    "name": "front/a/1", "connect": "tcp:10.0.0.9:7", "secret": "s", "folder": "/code", "num_cpus": 2.0,
    "num_gpus": 0.0, "resources": {}, "variables": [], "has_folder": False,
}  # fmt: skip


def test_an_agent_has_one_place_and_what_was_asked_for() -> None:
    words = command(ORDER, Path("/tmp/secret"))
    assert words[1:5] == ["-m", "jitney", "worker", "--connect"]
    assert words[-4:] == ["--places", "1", "--cores", "2"]
    more = command({**ORDER, "num_cpus": 0.5, "num_gpus": 0.5, "resources": {"tpu": 4.0}}, Path("/tmp/secret"))
    assert more[-6:] == ["--cores", "1", "--devices", "auto", "--resources", "tpu=4"]


def test_the_threads_that_ray_sets_are_not_taken_for_the_choice_of_the_user() -> None:
    given = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "1"}
    made = environment(ORDER, given)
    assert "OMP_NUM_THREADS" not in made
    assert made["CUDA_VISIBLE_DEVICES"] == "1"
    assert (made["JITNEY_WORKER_ENGINE"], made["JITNEY_WORKER_NAME"]) == ("ray", "front/a/1")
    assert environment({**ORDER, "variables": ["OMP_NUM_THREADS"]}, given)["OMP_NUM_THREADS"] == "1"


def node(labels: dict[str, str] | None = None, **resources: float) -> dict[str, Any]:
    return {"Alive": True, "Resources": resources, "Labels": labels or {}}


@pytest.mark.parametrize(
    ("asked", "nodes", "free", "why"),
    [
        ({"num_gpus": 1.0}, [node(CPU=4, GPU=1)], {"CPU": 4}, "the Ray cluster has no free GPU"),
        ({"num_gpus": 2.0}, [node(CPU=4, GPU=2)], {"CPU": 4, "GPU": 1}, "the Ray cluster has no 2 free GPU"),
        ({"num_gpus": 4.0}, [node(CPU=4, GPU=2)], {"CPU": 4, "GPU": 2}, "no machine of the Ray cluster has 4 GPU"),
        ({"resources": {"tpu": 1.0}}, [node(CPU=4)], {"CPU": 4}, "no machine of the Ray cluster has 1 tpu"),
        (
            {"num_gpus": 1.0},
            [node(CPU=4), node(GPU=1)],
            {"CPU": 4, "GPU": 1},
            "no machine of the Ray cluster has all of CPU=1.0, GPU=1.0",
        ),
        (
            {"labels": {"zone": "b"}},
            [node({"zone": "a"}, CPU=4)],
            {"CPU": 4},
            "no machine of the Ray cluster has the labels zone=b",
        ),
        ({}, [node(CPU=4)], {"CPU": 4}, STARTING),
        ({}, [{**node(CPU=4), "Alive": False}, node(CPU=0)], {}, "no machine of the Ray cluster has 1 CPU"),
    ],
)
def test_what_a_place_waits_for(
    asked: dict[str, Any], nodes: list[dict[str, Any]], free: dict[str, float], why: str
) -> None:
    needs: dict[str, Any] = {"num_cpus": 1.0, "num_gpus": 0.0, "resources": {}, "labels": {}, **asked}
    assert why_pending(needs, nodes, free) == why
