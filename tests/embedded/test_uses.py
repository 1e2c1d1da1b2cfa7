"""A program runs models that use each other."""

import asyncio
from pathlib import Path

import jitney
import pytest

SOURCE = """
import jitney


@jitney.deployment
class Inner:
    def predict(self, texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise jitney.InvalidInput("not for the inner one")
        return [text.upper() for text in texts]


@jitney.deployment(batched=False, max_batch_size=8, examples=["warm"])
class Outer:
    inner = jitney.uses(Inner)

    async def predict(self, text: str) -> str:
        return f"({await self.inner(text)})"


@jitney.deployment(examples=["warm"])
class Waiting:
    inner = jitney.uses_sync("inner")

    def predict(self, texts: list[str]) -> list[str]:
        return self.inner.many(texts)


@jitney.deployment
class Measure:
    def predict(self, texts: list[str]) -> list[dict[str, int]]:
        return [{"length": len(text)} for text in texts]


Twice = jitney.chain(Inner, Measure)
Both = jitney.together(upper=Inner, twice=Twice)
"""


def test_a_program_calls_what_its_engine_carries_out(tmp_path: Path) -> None:
    source = tmp_path / "composed_here.py"
    source.write_text(SOURCE)

    async def run() -> None:
        async with jitney.run(str(source)) as models:
            assert await models.twice("abc") == {"length": 3}
            assert await models.both.many(["a", "bc"]) == [
                {"upper": "A", "twice": {"length": 1}},
                {"upper": "BC", "twice": {"length": 2}},
            ]
            with pytest.raises(jitney.InvalidInput, match="inner: not for the inner one"):
                await models.both("bad")

    asyncio.run(run())


def test_models_of_an_engine_use_each_other(tmp_path: Path) -> None:
    source = tmp_path / "using.py"
    source.write_text(SOURCE)

    async def run() -> None:
        async with jitney.run(str(source)) as models:
            assert await asyncio.gather(*(models.outer(f"{n}a") for n in range(20))) == [f"({n}A)" for n in range(20)]
            assert await models.waiting.many(["a", "b"]) == ["A", "B"]
            with pytest.raises(jitney.ModelFailed, match="inner: "):
                await models.outer("bad")

    asyncio.run(run())
