"""The scripts that serve answers in parts in `make bench-peers`, without their servers."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
catalog: Any = importlib.import_module("peers.catalog")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts in `served/streams` import each other by name, as a server that starts them does."""
    names = ("models", "parts", "engine", "pytriton_streams")
    monkeypatch.setattr(sys, "path", [str(catalog.SERVED / "streams"), str(catalog.SERVED), *sys.path])
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("streams")
def test_items_of_an_engine_join_between_steps_and_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, engine = (importlib.import_module(name) for name in ("parts", "engine"))
    steps: list[int] = []
    step = parts.step

    def counted(writings: list[Any]) -> list[str]:
        steps.append(len(writings))
        return step(writings)

    async def both() -> list[list[str]]:
        one = engine.Engine()

        async def stream(text: str, count: int) -> list[str]:
            return [part async for part in one.generate({"text": text, "parts": count})]

        long = asyncio.create_task(stream("long", 50))
        while not steps:
            await asyncio.sleep(0)
        return [await stream("short", 3), await long]

    monkeypatch.setattr(parts, "step", counted)
    assert asyncio.run(both()) == [["short"] * 3, ["long"] * 50]
    assert (steps[0], steps.count(2), len(steps)) == (1, 3, 50)


@pytest.mark.usefixtures("streams")
def test_an_item_of_pytriton_that_has_ended_gets_events_without_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"pytriton": (), "pytriton.model_config": ("DynamicBatcher", "ModelConfig", "Tensor")}
    for name, attributes in {**names, "pytriton.triton": ("Triton", "TritonConfig")}.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**dict.fromkeys(attributes, object)))
    server: Any = importlib.import_module("pytriton_streams")

    def request(text: str, count: int) -> SimpleNamespace:
        return SimpleNamespace(
            data={"text": np.array([[text.encode()]], np.object_), "parts": np.array([[count]], np.int32)}
        )

    made = list(server.in_batches([request("a", 1), request("b", 2)]))
    assert [[answer["text"].item() if answer else None for answer in step] for step in made] == [
        [b"a", b"b"],
        [None, b"b"],
    ]
    body = b'data: {"model_name":"served","text":"a"}\n\ndata: {"model_name":"served"}\n\n'
    assert catalog.triton_text("stream-noop", body, {}) == "a"
