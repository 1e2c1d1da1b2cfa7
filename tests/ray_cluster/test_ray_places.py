"""Where Ray puts replicas, and what they find there."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Server, until
from nodes import Nodes
from watching import Start, actors, answers_of

pytestmark = pytest.mark.usefixtures("orphans")


def nodes_of(server: Server, replicas: int) -> dict[int, str]:
    """The node of each replica, by its process."""
    seen: dict[int, str] = {}

    def ask() -> bool:
        seen.update({answer["pid"]: answer["node"] for answer in answers_of(server, 8 * replicas)})
        return len(seen) == replicas

    until(ask, f"{replicas} replicas answer, and not only {seen}")
    return seen


def reasons(server: Server) -> str:
    return " ".join(server.get("/readyz").json()["reasons"])


def test_replicas_are_spread_over_the_machines(start: Start) -> None:
    server = start("--replicas", "2")
    assert sorted(nodes_of(server, 2).values()) == ["m1", "m2"]
    assert len(actors()) >= 2
    assert "OMP_NUM_THREADS" not in server.log()


def test_replicas_run_where_their_resources_are_and_share_a_device(start: Start) -> None:
    server = start("--replicas", "3", "--resources", "m2=1", "--num-gpus", "0.5", "--num-cpus", "1")
    assert set(nodes_of(server, 3).values()) == {"m2"}
    answers = answers_of(server, 24)
    assert {answer["devices"] for answer in answers} == {"0", "1"}
    assert {answer["device"] for answer in answers} == {"cuda:0"}


def test_node_labels_and_the_share_of_the_cores(start: Start) -> None:
    server = start("--node-labels", "zone=m1", "--num-cpus", "2")
    (answer,) = answers_of(server, 1)
    # Ray's own OMP_NUM_THREADS is not taken for the user's choice: the share follows num_cpus.
    assert (answer["node"], answer["cores"], answer["omp"], answer["is_main"]) == ("m1", 2, "2", True)


def test_the_folder_and_the_variables_of_a_runtime_environment(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "words.py").write_text("GREETING = 'hello'\n")
    (folder / "greeting.py").write_text(
        "import os\nimport jitney\nfrom words import GREETING\n\n\n@jitney.deployment\nclass Greeting:\n"
        "    def predict(self, items: list[str]) -> list[str]:\n"
        "        return [f\"{GREETING} {item} {os.environ['WHOSE']} {os.getcwd()}\" for item in items]\n"
    )
    environment = json.dumps({"working_dir": str(folder), "env_vars": {"WHOSE": "ours"}})
    server = start("--runtime-env", environment, targets=(str(folder / "greeting.py"),))
    said = server.post("/greeting", "you").json()
    assert said.startswith("hello you ours ") and str(folder) not in said


def test_with_no_worker_on_the_machine_of_the_front_the_target_is_imported_in_the_cluster(start: Start) -> None:
    plain = start("--local", "0")
    assert plain.workers() == []
    (answer,) = answers_of(plain, 1)
    imported = len(re.findall(r"placed\.py@\S+: importing", plain.log()))
    assert (answer["node"] in ("m1", "m2"), imported) == (True, 1)
    # The place in which it was imported has no device: the replica gets another one.
    other = start("--local", "0", "--num-gpus", "1")
    (answer,) = answers_of(other, 1)
    assert answer["devices"] in ("0", "1")


def test_what_replicas_wait_for_is_said_and_the_wait_does_not_count_as_loading(start: Start) -> None:
    first = start("--replicas", "2", "--num-gpus", "2")
    limit_s = 4
    second = start("--replicas", "2", "--num-gpus", "1", "--load-timeout-s", str(limit_s), wait=False)
    waiting = "placed: 0 of 2 replicas are ready: waits for 2 places: the Ray cluster has no free GPU"
    until(lambda: waiting in reasons(second), "it says what it waits for")
    began = time.monotonic()
    until(lambda: time.monotonic() - began > limit_s, "it has waited for longer than a model may load")
    assert waiting in reasons(second)
    first.finish()
    second.wait_ready()
    assert len(nodes_of(second, 2)) == 2


def test_a_place_that_no_machine_has_is_said(start: Start) -> None:
    server = start("--num-gpus", "9", wait=False)
    until(lambda: "no machine of the Ray cluster has 9 GPU" in reasons(server), "it says what no machine has")


def test_replicas_come_and_go_with_the_load(start: Start, nodes: Nodes) -> None:
    before = len(actors())
    elastic = (
        "--min-replicas",
        "1",
        "--max-replicas",
        "3",
        "--scale-down-after-s",
        "1",
        "--set",
        "placed.init.takes_s=0.2",
    )
    server = start(*elastic)
    assert len(actors()) == before + 1
    held = True
    answers: list[dict[str, Any]] = []
    while held:
        answers += answers_of(server, 40)
        held = server.metric("jitney_ready_replicas", deployment="placed") < 3
    assert len({answer["pid"] for answer in answers_of(server, 60)}) == 3
    until(lambda: len(actors()) == before + 1, "places that are not needed any more are given up")
    assert server.metric("jitney_workers_lost_total", deployment="placed") == 0
    assert len(answers_of(server, 4)) == 4
