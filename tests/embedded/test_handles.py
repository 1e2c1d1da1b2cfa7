"""What a type checker knows of the handles."""

import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import jitney
import msgspec
import numpy as np


class Prompt(msgspec.Struct):
    text: str


class Picture(msgspec.Struct):
    size: int


@jitney.deployment
class Embedder:
    def predict(self, texts: list[str]) -> np.ndarray: ...


@jitney.deployment
class Painter:
    def predict(self, prompts: list[Prompt]) -> list[Picture]: ...


@jitney.deployment
class Double:
    def predict(self, values: np.ndarray) -> np.ndarray: ...


@jitney.deployment
class Words:
    def predict(self, texts: list[str]) -> jitney.Embeddings: ...


@jitney.deployment
class Priced:
    def predict(self, prompts: list[Prompt]) -> list[Picture | jitney.InvalidInput]: ...


@jitney.deployment
def shout(texts: list[str]) -> list[str]: ...


@jitney.deployment
def words(texts: list[str]) -> jitney.Embeddings: ...


@jitney.deployment
def priced(texts: list[str]) -> list[Picture | jitney.InvalidInput]: ...


@jitney.deployment(batched=False)
class Single:
    def predict(self, text: str) -> Picture | jitney.InvalidInput: ...


@jitney.deployment(batched=False)
def single(text: str) -> Picture | jitney.InvalidInput: ...


class Later:
    async def predict(self, prompts: list[Prompt]) -> list[Picture | jitney.InvalidInput]: ...


@jitney.deployment(batched=False)
async def later(text: str) -> Picture: ...


@jitney.deployment
async def vectors(texts: list[str]) -> np.ndarray: ...


class Rows:
    async def predict(self, texts: list[str]) -> np.ndarray: ...


class Scaled:
    def __init__(self, scale: float, *, label: str = "") -> None: ...
    def predict(self, prompts: list[Prompt]) -> list[Picture]: ...


class Clip:
    def __init__(self, device: str = "") -> None: ...
    @jitney.method
    def embed(self, texts: list[str]) -> list[str]: ...


@jitney.deployment
class Letters:
    def predict(self, texts: list[str]) -> Iterator[list[jitney.Step[str]]]: ...


@jitney.deployment(batched=False)
def counted(prompt: Prompt) -> Iterator[jitney.Step[Picture, int]]: ...


@jitney.deployment
class Writer:
    def admit(self, texts: list[str]) -> list[Prompt | Exception]: ...
    def step(self, states: list[Prompt]) -> list[jitney.Step[bytes, str]]: ...


@jitney.deployment(batched=False)
class Speaker:
    async def predict(self, prompt: Prompt) -> AsyncIterator[jitney.Step[bytes, str]]:
        yield b"a"


@jitney.deployment(batched=False)
async def spoken(text: str) -> AsyncIterator[jitney.Step[bytes]]:
    yield b"a"


few = jitney.configure(Clip, name="few")
small = jitney.configure(Scaled, name="small", replicas=2)(0.5, label="a")
loud = jitney.configure(shout, name="loud")
vector = jitney.configure(Embedder, name="vector")()
jitney.configure(Scaled)("WRONG")
jitney.configure(Scaled, max_batch="WRONG")


async def main() -> None:
    async with jitney.run(Embedder, Painter, Double, shout, "other.py") as models:
        reveal_type(models.other)
        reveal_type(await models.other("x"))
        reveal_type(models[Painter])
        reveal_type(await models[Painter](Prompt("a bus")))
        reveal_type(await models[shout]("x"))
        reveal_type(await models[Embedder]("x"))
        reveal_type(await models[Double](np.ones(3)))
        reveal_type(await models[shout].many(["x"]))
        reveal_type(await models[shout].many(["x"], return_exceptions=True))
        await models[shout](3)
        reveal_type(models[Words])
        reveal_type(models[Priced])
        reveal_type(models[words])
        reveal_type(models[priced])
    with jitney.run_sync(Painter) as sync:
        reveal_type(sync[Painter](Prompt("a bus")))
        reveal_type(sync[Words]("x"))
        reveal_type(sync[Priced](Prompt("a bus")))
        reveal_type(sync[words]("x"))
        reveal_type(sync[priced]("x"))
        reveal_type(sync[Priced].many([Prompt("a bus")]))
        reveal_type(sync[priced].many(["x"], return_exceptions=True))
        reveal_type(sync[Single]("x"))
        reveal_type(sync[single]("x"))
        reveal_type(sync[Later](Prompt("a bus")))
        reveal_type(sync[later]("x"))
        reveal_type(sync[vectors]("x"))
        reveal_type(sync[Rows]("x"))
        reveal_type(sync[small])
        reveal_type(sync[loud])
        reveal_type(sync[vector]("x"))
        reveal_type(models[Clip])
        reveal_type(sync[few].embed)
        sync[Clip]("WRONG: it has no predict")
        reveal_type(models[Letters])
        reveal_type([part async for part in models[Letters].stream("x")])
        reveal_type(await models[counted](Prompt("x")))
        reveal_type(models[counted].stream(Prompt("x")))
        reveal_type([part for part in sync[Writer].stream("x")])
        reveal_type(sync[Writer]("x"))
        reveal_type(await models.other.stream("x").begin())
        reveal_type(sync[Letters])
        reveal_type(models[Speaker].stream(Prompt("x")))
        reveal_type(sync[spoken].stream("x"))
    model: jitney.Model[str, np.ndarray]
"""


def test_pyright_knows_what_goes_in_and_comes_out(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    ran = subprocess.run(pyright, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    types = [m[1] for d in found if (m := re.search(r'is "(.*)"$', d["message"])) and d["severity"] == "information"]
    array = "ndarray[tuple[Any, ...], dtype[Any]]"
    assert types == [
        "Model[Any, Any]",
        "Any",
        "Model[Prompt, Picture]",
        "Picture",
        "str",
        array,
        array,
        "list[str]",
        "list[str | RequestError]",
        f"Model[str, {array}]",
        "Model[Prompt, Picture]",
        f"Model[str, {array}]",
        "Model[str, Picture]",
        "Picture",
        array,
        "Picture",
        array,
        "Picture",
        "list[Picture]",
        "list[Picture | RequestError]",
        "Picture",
        "Picture",
        "Picture",
        "Picture",
        array,
        array,
        "SyncModel[Prompt, Picture]",
        "SyncModel[str, str]",
        array,
        "Methods[Model[Any, Any]]",
        "SyncModel[Any, Any]",
        "StreamModel[str, Any, str]",
        "list[str]",
        "int",
        "Parts[Picture]",
        "list[bytes]",
        "str",
        "Parts[Any]",
        "SyncStreamModel[str, Any, str]",
        "Parts[bytes]",
        "SyncParts[bytes]",
    ]
    errors = [d["message"] for d in found if d["severity"] == "error" and "list" not in d["message"]]
    assert any('"Literal[3]"' in error and '"str"' in error for error in errors), errors
    assert sum("WRONG" in error or "max_batch" in error for error in errors) == 2, errors
    assert sum("Methods[" in error for error in errors) == 1, errors
