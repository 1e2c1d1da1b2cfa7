"""`jitney.configure`: one class as several deployments, found by name at the top level of a module."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jitney
import pytest
from jitney.config.layers import Overrides, resolve
from jitney.deployments.classes import deployment_of, target_of
from jitney.deployments.deployment import MARK, Deployment
from jitney.deployments.targets import load_target
from jitney.errors import ConfigError, TargetError

TRANSLATORS = """
import jitney

class Translator:
    def __init__(self, language: str, checkpoint: str = "small") -> None:
        self.said = f"{language} {checkpoint}"

    def predict(self, texts: list[str]) -> list[str]:
        return [f"{text}: {self.said}" for text in texts]

@jitney.deployment(max_batch_size=8, policy="eager", examples=["decorated"])
def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]

french = jitney.configure(Translator, name="french", replicas=2)("fr")
german = jitney.configure(Translator, name="deutsch")(language="de", checkpoint="large")
loud = jitney.configure(shout, name="loud", max_batch_size=4)
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    held = set(sys.modules)
    yield
    for name in set(sys.modules) - held:
        del sys.modules[name]


@pytest.fixture
def translators(tmp_path: Path) -> str:
    path = tmp_path / "translators.py"
    path.write_text(TRANSLATORS)
    return str(path)


def answer(deployment: Deployment, overrides: Overrides | None = None) -> str:
    resolved = resolve(deployment.name, deployment.declared, overrides or Overrides(), deployment.init)
    return deployment.instantiate(resolved.init)(["a"])[0]


def test_one_class_is_two_models_in_a_file(translators: str) -> None:
    found = {each.name: each for each in load_target(translators)}
    assert list(found) == ["shout", "french", "deutsch", "loud"]
    assert (answer(found["french"]), answer(found["deutsch"])) == ("a: fr small", "a: de large")
    assert found["french"].declared == {"replicas": 2}
    assert (found["loud"].declared, found["loud"].examples) == (
        {"max_batch_size": 4, "policy": "eager"},
        ["decorated"],
    )
    assert found["shout"].declared["max_batch_size"] == 8


@pytest.mark.parametrize("name", ["german", "deutsch"])
def test_one_is_chosen_by_its_variable_or_its_name(translators: str, name: str) -> None:
    [found] = load_target(f"{translators}:{name}")
    assert answer(found) == "a: de large"


def test_all_layers_are_above_the_arguments_in_the_code(translators: str) -> None:
    [french] = load_target(f"{translators}:french")
    overrides = Overrides()
    overrides.file.init["french"] = {"checkpoint": "file"}
    overrides.give("french.init.language", "fr-CA")
    assert answer(french, overrides) == "a: fr-CA file"


def test_the_target_of_an_object_is_its_variable(translators: str) -> None:
    load_target(translators)
    module = cast("Any", sys.modules["translators"])
    assert target_of(module.french) == "translators:french"
    assert target_of(module.german) == "translators:german"
    assert deployment_of(module.french) is module.french
    with pytest.raises(TargetError, match=r"no name at the top level of \S+; .*write there: far = jitney.configure"):
        target_of(jitney.configure(module.Translator, name="far"))


def test_the_class_stays_what_it_was(translators: str) -> None:
    load_target(translators)
    module = cast("Any", sys.modules["translators"])
    assert MARK not in vars(module.Translator)
    assert deployment_of(module.shout).name == "shout"


class Model:
    def __init__(self, path: str | None = None, *weights: float, **others: object) -> None: ...
    def predict(self, texts: list[str]) -> list[str]: ...


def test_constructor_arguments_are_plain_values_with_names() -> None:
    made = jitney.configure(Model, name="made")
    assert made(None).init == {"path": None}
    assert made("a")(more=1).init == {"path": "a", "more": 1}
    with pytest.raises(ConfigError, match="deployment `made`: constructor argument `path`: PosixPath is not supported"):
        made(Path("a"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="constructor argument `weights`: tuple is not supported"):
        made("a", 1.0)
    with pytest.raises(ConfigError, match="too many positional arguments"):
        jitney.configure(Few, name="few")(1, 2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match="did you mean `replicas`"):
        jitney.configure(Model, num_replicas=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TargetError, match="takes a class or a function, not 'model'"):
        jitney.configure("model")  # pyright: ignore[reportCallIssue, reportArgumentType]


class Few:
    def __init__(self, one: int) -> None: ...
    def predict(self, texts: list[str]) -> list[str]: ...


def test_two_of_one_name_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(TRANSLATORS + "again = jitney.configure(Translator, name='french')('fr')\n")
    with pytest.raises(TargetError, match=r"both called `french`; give one another name: jitney.configure\(name="):
        load_target(str(path))
