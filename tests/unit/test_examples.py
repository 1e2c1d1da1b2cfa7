"""Every example passes `jitney check`, and says how to serve it and how to ask it."""

import importlib.util
from pathlib import Path

import pytest
from jitney.cli.main import main

FOLDER = Path(__file__).parents[2] / "examples"
FURTHER = ["rag/rag.py", "text_to_image/whole.py", "text_to_image/steps.py"]
EXAMPLES = [*sorted(FOLDER.glob("*.py")), *(FOLDER / name for name in FURTHER)]
NEEDS = {"speech.py": "espeakng_loader", "whole.py": "onnxruntime", "steps.py": "onnxruntime"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_works(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = NEEDS.get(path.name)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    assert main(["check", str(path)]) == 0
    assert "warning" not in capsys.readouterr().out
    text = path.read_text()
    assert f"jitney serve examples/{path.relative_to(FOLDER)}" in text
    assert "curl -s 127.0.0.1:8000/" in text or "curl -sN 127.0.0.1:8000/" in text
