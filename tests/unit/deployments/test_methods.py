"""`@jitney.method`: what is served, and what is refused when the class is defined."""

from collections.abc import Callable
from typing import Any

import jitney
import pytest
from jitney.config.layers import Overrides, resolve
from jitney.deployments.deployment import MARK, Deployment
from jitney.deployments.manifest import manifest
from jitney.errors import ConfigError, TargetError


@jitney.deployment(max_batch_size=4)
class Both:
    """Two methods."""

    def predict(self, texts: list[str]) -> list[str]:
        return texts

    @jitney.method(group_by=(jitney.length(),), examples=["a"])
    def count(self, texts: list[str]) -> list[int]:
        """Count letters."""
        return [len(text) for text in texts]


class Base:
    @jitney.method
    def first(self, texts: list[str]) -> list[str]:
        return texts

    @jitney.method
    def second(self, texts: list[str]) -> list[str]:
        return texts

    @staticmethod
    @jitney.method
    def third(texts: list[str]) -> list[str]:
        return texts


def of(kind: Callable[..., object]) -> Deployment:
    return vars(kind)[MARK]


def manifests(kind: Callable[..., object]) -> list[dict[str, Any]]:
    found = of(kind)
    return manifest("m.py", [(found, resolve(found.name, found.declared, Overrides()))])["deployments"]


def test_each_method_has_a_name_a_route_and_types() -> None:
    predict, count = manifests(Both)
    assert (predict["name"], predict["route"]) == ("both", None)
    assert predict["method"] == {"deployment": "both", "name": "predict"}
    assert (count["name"], count["route"], count["doc"]) == ("both.count", "/both/count", "Count letters.")
    assert count["method"] == {"deployment": "both", "name": "count"}
    assert count["options"] == predict["options"] and count["options"]["max_batch_size"] == 4
    assert (len(predict["group_by"]), len(count["group_by"]), count["examples"]) == (0, 1, ["a"])


def test_a_class_without_marks_has_no_methods() -> None:
    @jitney.deployment
    class Plain:
        def predict(self, texts: list[str]) -> list[str]:
            return texts

    assert "method" not in manifests(Plain)[0]
    assert of(Plain).load({}).methods == {}


def test_methods_are_inherited_and_loaded_once() -> None:
    @jitney.deployment(name="sub", route="/v1/sub")
    class Sub(Base):
        def second(self, texts: list[str]) -> list[str]:  # its own, and not marked
            return texts

    assert [(each.name, each.route) for each in of(Sub).served] == [
        ("sub.first", "/v1/sub/first"),
        ("sub.third", "/v1/sub/third"),
    ]
    model = of(jitney.deployment(type("Other", (Base,), {}))).load({})
    assert [model.of(name).predict(["a"]) for name in ("first", "third")] == [["a"], ["a"]]


def test_a_method_may_have_its_own_path() -> None:
    @jitney.deployment(name="texts")
    class Texts:
        @jitney.method(route="/v1/summarize")
        def summarize(self, texts: list[str]) -> list[str]:
            return texts

        @jitney.method
        def count(self, texts: list[str]) -> list[int]:
            return [len(text) for text in texts]

    assert [(each.name, each.route) for each in of(Texts).served] == [
        ("texts.summarize", "/v1/summarize"),
        ("texts.count", "/texts/count"),
    ]
    with pytest.raises(ConfigError, match="is not a path"):
        jitney.deployment(type("Odd", (), {"one": jitney.method(route="summarize")(Texts.count)}))


def test_what_cannot_be_served_is_refused() -> None:
    def texts(self: object, texts: list[str]) -> list[str]:
        del self
        return texts

    async def later(self: object, texts: list[str]) -> list[str]:
        del self
        return texts

    def served(name: str, function: Any = texts, **options: Any) -> Deployment:
        kind = type("Kind", (), {name: jitney.method(function), "other": jitney.method(texts)})
        return of(jitney.deployment(**options)(kind))

    with pytest.raises(TargetError, match=r"Kind.batch cannot be served under this name: /batch is the path"):
        served("batch")
    with pytest.raises(TargetError, match=r"served without @jitney.method; give its options to @jitney.deployment"):
        served("predict")
    with pytest.raises(TargetError, match="begins with a letter"):
        served("_hidden")
    with pytest.raises(TargetError, match="`async def` for all served methods or for none"):
        served("late", later)
    with pytest.raises(ConfigError, match=r"Kind has no `predict`: examples .* @jitney.method\(examples="):
        served("one", examples=["a"])
    with pytest.raises(ConfigError, match="1 to 64"):
        served("x" * 64)
    with pytest.raises(TargetError, match="no option 'replicas', only route, group_by, cost, task, examples"):
        jitney.method(**{"replicas": 2})  # pyright: ignore
    with pytest.raises(TargetError, match="put it below @staticmethod"):
        jitney.method(staticmethod(texts))


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(TargetError, match="two methods are called `one`"):

        class Twice:  # pyright: ignore[reportUnusedClass]
            @jitney.method
            def one(self, texts: list[str]) -> list[str]:  # pyright: ignore[reportRedeclaration]
                return texts

            @jitney.method(examples=["a"])
            def one(self, texts: list[bytes]) -> list[str]:  # pyright: ignore  # noqa: F811
                return []
