"""Programs whose models run in the cluster: the example, and what the pages show."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from harness import until
from nodes import Nodes
from pages import ROOT, Block, blocks
from watching import actors

EXAMPLE = ROOT / "examples" / "on_ray" / "app.py"
NEEDS = "needs a Ray cluster"
PAGE = "docs/how-to/programs/ray.md"
PROGRAMS = [block for block in blocks(PAGE) if block.reason == NEEDS and block.language == "python"]
FILES = {block.file: block for block in blocks("docs/how-to/programs/first-call.md") if block.file}


def test_a_handler_of_fastapi_calls_a_model_that_runs_in_the_cluster(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = actors()
    monkeypatch.setenv("RAY_CLUSTER", nodes.address)
    application = runpy.run_path(str(EXAMPLE))["app"]
    with TestClient(application) as client:
        answer = client.get("/count", params={"text": "two words"}).json()
        assert (answer["text"], answer["words"]) == ("two words", 2)
        assert len(actors()) == len(before) + 2
    until(lambda: set(actors()) <= set(before), "the actors end with the application", 10)


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_programs_of_the_page_run(block: Block, nodes: Nodes, tmp_path: Path) -> None:
    assert PROGRAMS
    (tmp_path / "lengths.py").write_text(FILES["lengths.py"].text)
    ran = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": nodes.address},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip()) == (0, "14"), ran.stderr
