"""Keyword arguments that editors complete are the options of the tables, with their types."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
from jitney.config.keywords import DeploymentKeywords, ServerKeywords
from jitney.config.option import Option
from jitney.config.options import deployment_options, server_options


def written(option: Option) -> Any:
    """Return the annotation that a keyword of this option has."""
    kind: Any = str | Sequence[str] if option.base is tuple else option.base
    if option.is_json:
        kind = str | Mapping[str, Any]
    if option.choices:
        kind = Literal[option.choices]
    return kind | None if option.is_optional else kind


@pytest.mark.parametrize(
    ("keywords", "table"), [(DeploymentKeywords, deployment_options()), (ServerKeywords, server_options())]
)
def test_the_keywords_are_the_table(keywords: type, table: dict[str, Option]) -> None:
    hints = get_type_hints(keywords)
    assert list(hints) == list(table)
    assert hints == {name: written(option) for name, option in table.items()}


PROGRAM = """
import jitney

@jitney.deployment(max_batch_size=8, policy="eager", devices=["cuda:0"], max_wait_s=None, name="right", examples=["a"])
class Right:
    def predict(self, texts: list[str]) -> list[str]: ...

@jitney.deployment
def plain(texts: list[str]) -> list[str]: ...

right: type[Right] = Right
jitney.serve(Right, "m.py", port=8000, listen="unix:m.sock", log_format="json", options={"right.replicas": 2})
jitney.deployment(max_batch=8)
jitney.deployment(max_batch_size="8")
jitney.deployment(policy="drain")
jitney.deployment(retry=3)
jitney.configure(Right, replica=2)
jitney.serve(Right, max_connections="many")
jitney.serve(Right, max_conections=3)
"""


def test_pyright_knows_each_option_and_its_type(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    ran = subprocess.run(pyright, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = PROGRAM.splitlines()
    found: list[dict[str, Any]] = json.loads(ran.stdout)["generalDiagnostics"]
    errors = {lines[int(each["range"]["start"]["line"])] for each in found}
    assert errors == set(lines[-7:]), ran.stdout
