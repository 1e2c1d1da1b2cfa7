"""How many workers import a target before its manifest is known: its file is read and not run."""

from pathlib import Path

import pytest
from jitney.config.layers import Overrides
from jitney.config.reading import read_overrides
from jitney.front.expected import expected_replicas

SOURCE = """
import jitney
from jitney import deployment

raise SystemExit("the front never imports user code")

@jitney.deployment(replicas=2)
class TwoOfThem: ...

@deployment(name="other", replicas=3)
def predict(texts): ...

@deployment
class Plain: ...

COUNT = 7

@deployment(replicas=COUNT)
class Unknown: ...

class NoDeployment: ...
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "models.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("name", "sets", "expected"),
    [
        ("", [], 2 + 3 + 1 + 1),
        (":TwoOfThem", [], 2),
        (":two_of_them", [], 2),
        (":other", [], 3),
        (":NoDeployment", [], 1),
        (":TwoOfThem", ["two_of_them.replicas=5"], 5),
        (":other", ["other.replicas=1"], 1),
        (":Unknown", ["unknown.replicas=4"], 4),
    ],
)
def test_the_file_and_the_options_say_how_many(file: str, name: str, sets: list[str], expected: int) -> None:
    assert expected_replicas(file + name, read_overrides(None, {}, sets)) == (expected, expected)


def test_the_most_replicas_share_the_cores(file: str) -> None:
    sets = ["two_of_them.max_replicas=5"]
    assert expected_replicas(f"{file}:TwoOfThem", read_overrides(None, {}, sets)) == (2, 5)


def test_an_option_of_the_only_deployment_counts_wherever_its_code_is(file: str) -> None:
    overrides = Overrides()
    overrides.give_flag("replicas", "6")
    assert expected_replicas(f"{file}:TwoOfThem", overrides) == (6, 6)
    assert expected_replicas("package.module:Model", overrides) == (6, 6)


def test_a_module_is_found_in_the_working_directory(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(file).parent)
    assert expected_replicas("models:TwoOfThem", Overrides()) == (2, 2)


@pytest.mark.parametrize("source", ["def (", "\0", "@jitney.deployment(replicas='many')\nclass A: ..."])
def test_what_is_wrong_with_a_file_is_said_by_a_worker(tmp_path: Path, source: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    assert expected_replicas(str(path), Overrides()) == (1, 1)
    assert expected_replicas(str(tmp_path / "none.py"), Overrides()) == (1, 1)
