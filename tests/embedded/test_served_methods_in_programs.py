"""Programs call the methods of a model as attributes of it."""

import asyncio
import importlib
from typing import Any, cast

import jitney
import pytest
from jitney.errors import InvalidInput
from witnesses import APPS

CLIP = str(APPS / "clip.py")


def test_methods_are_attributes_of_their_model() -> None:
    with jitney.run_sync(CLIP) as models:
        assert models.clip.embed_text("four").tolist() == [4.0, 1.0]
        assert models["clip"].embed_text("four").tolist() == [4.0, 1.0]
        assert models["clip.embed_text"]("four").tolist() == [4.0, 1.0]
        assert models.words("abc") == "cba"
        assert models.words.letters.many(["a", "bb"]) == [1, 2]
        assert {"clip", "clip.embed_text", "words"} <= set(dir(models))
        with pytest.raises(AttributeError, match="no method 'embed'; its methods are embed_"):
            models.clip.embed  # noqa: B018
        with pytest.raises(AttributeError, match="no method 'letter'; its methods are letters"):
            models.words.letter  # noqa: B018
        with pytest.raises(TypeError, match="has no `predict`: call one of its methods"):
            models.clip("four")
        with pytest.raises(InvalidInput):
            models.clip.embed_square({"size": "x"})


def test_methods_are_awaited_and_their_types_are_known() -> None:
    async def main() -> None:
        clip: Any = importlib.import_module("clip")  # the fixture adds its folder
        async with jitney.run(CLIP) as models:
            model: Any = cast("Any", models[clip.Clip])
            answer = await model.embed_square(clip.Square(3))
            assert isinstance(answer, clip.Answer) and answer.size == 3
            assert await models.words.letters("abc") == 3

    asyncio.run(main())
