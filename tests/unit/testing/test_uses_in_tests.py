"""Models that use each other, in one process."""

import asyncio

import jitney
import pytest
from jitney import testing
from jitney.types.uses import uses_of


@jitney.deployment
class Inner:
    def predict(self, texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise jitney.InvalidInput("not for the inner one")
        return [text.upper() for text in texts]


@jitney.deployment(batched=False, max_batch_size=8)
class Awaiting:
    inner = jitney.uses(Inner)

    async def predict(self, text: str) -> str:
        one, many = await asyncio.gather(self.inner(text), self.inner.many([text, text]))
        return f"{one} {' '.join(many)}"


@jitney.deployment
class Waiting:
    inner = jitney.uses_sync(Inner)

    def predict(self, texts: list[str]) -> list[str]:
        return self.inner.many(texts)


def test_models_of_one_process_use_each_other() -> None:
    with testing.inline(Awaiting, Waiting, Inner) as models:
        assert models[Awaiting]("a") == "A A A"
        assert models[Waiting].many(["a", "b"]) == ["A", "B"]
        with pytest.raises(jitney.ModelFailed, match="not for the inner one"):
            models[Awaiting]("bad")


def test_an_item_that_the_inner_model_does_not_take_is_a_failure_of_the_model_that_made_it() -> None:
    @jitney.deployment
    class Wrong:
        inner = jitney.uses_sync(Inner)

        def predict(self, texts: list[str]) -> list[str]:
            return self.inner.many([{"a": 1} for _ in texts])  # type: ignore[list-item]  # pyright: ignore

    with (
        testing.inline(Wrong, Inner) as models,
        pytest.raises(jitney.ModelFailed, match="inner: expected str, got dict"),
    ):
        models[Wrong]("a")


def test_what_is_used_must_be_there() -> None:
    with pytest.raises(jitney.NotFound, match="no deployment 'inner'"), testing.inline(Awaiting):
        pass


def test_a_use_has_a_stand_in_in_a_test() -> None:
    async def fake(text: str) -> str:
        return text * 2

    assert uses_of(Awaiting)["inner"].name == "inner"
    model = Awaiting()
    model.inner = fake  # type: ignore[assignment]
    assert asyncio.run(model.inner("a")) == "aa"


def test_the_wrong_kind_of_use_is_refused() -> None:
    with pytest.raises(jitney.TargetError, match=r"take jitney\.uses and `await`"):

        @jitney.deployment(batched=False)
        class One:  # pyright: ignore[reportUnusedClass]
            inner = jitney.uses_sync(Inner)

            async def predict(self, text: str) -> str:
                return text

    with pytest.raises(jitney.TargetError, match=r"take jitney\.uses_sync"):

        @jitney.deployment
        class Other:  # pyright: ignore[reportUnusedClass]
            inner = jitney.uses(Inner)

            def predict(self, texts: list[str]) -> list[str]:
                return texts


def test_a_use_in_the_constructor_is_refused_with_the_place_where_it_belongs() -> None:
    @jitney.deployment
    class Late:
        def __init__(self) -> None:
            self.inner = jitney.uses_sync(Inner)

        def predict(self, texts: list[str]) -> list[str]:
            return self.inner.many(texts)

    with (
        pytest.raises(
            jitney.TargetError, match=r"Late\.inner: jitney\.uses_sync is written in the class, not in `__init__`"
        ),
        testing.inline(Late, Inner),
    ):
        pass
