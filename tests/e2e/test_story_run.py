"""One story from its command to its file of results, as short as it can be."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_story_is_told_from_the_command_to_the_file_of_results(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "stories", "--stories", "2-sleeping", "--seconds", "2", "--repetitions", "1"]
    ran = subprocess.run(
        [*command, "--folder", str(tmp_path / "made"), "--output", str(output)],
        cwd=BENCHMARKS,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (told,) = json.loads(output.read_text())["stories"]
    assert {row["side"] for row in told["rows"]} == {"baseline", "jitney", "ceiling"}
    assert all(row["metrics"]["wrong"] == 0 for row in told["rows"])
    assert "jitney.run, defaults" in ran.stdout
    assert not (tmp_path / "made" / "progress.json").exists(), "what is finished is not resumed"
