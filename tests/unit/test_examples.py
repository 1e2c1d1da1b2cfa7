"""Every example passes `jitney check`, and says how to serve it and how to ask it."""

from pathlib import Path

import pytest
from jitney.cli.main import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_works(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(path)]) == 0
    assert "warning" not in capsys.readouterr().out
    text = path.read_text()
    assert f"jitney serve examples/{path.name}" in text
    assert "curl -s 127.0.0.1:8000/" in text
