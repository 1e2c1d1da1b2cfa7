"""Models whose inputs and outputs are tensors of several kinds."""

from typing import Annotated, Literal

import jitney
import msgspec
import numpy as np
from numpy.typing import NDArray
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=64)
def texts(texts: list[str]) -> list[str | jitney.InvalidInput]:
    """Texts, reversed; one that is `bad` is refused, one that is `raise` raises."""
    record("predict", texts)
    wait_at_gate()
    if "raise" in texts:
        raise RuntimeError("the model cannot do this")
    return [jitney.InvalidInput("too bad") if text == "bad" else text[::-1] for text in texts]


@jitney.deployment
def raw(blobs: list[bytes]) -> list[bytes]:
    """Returns bytes unchanged."""
    return blobs


@jitney.deployment(max_batch_size=64)
def floats(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns floats of any shape unchanged."""
    record("predict", [len(x)])
    wait_at_gate()
    return x


@jitney.deployment
def halves(x: Annotated[NDArray[np.float16], jitney.Tensor("float16", (None,))]) -> NDArray[np.float16]:
    """Returns float16 unchanged."""
    return x


@jitney.deployment(batched=False)
def whole(x: Annotated[NDArray[np.int64], jitney.Tensor("int64", (None, 2))]) -> NDArray[np.int64]:
    """One matrix, transposed."""
    return np.ascontiguousarray(x.T)


class Prompt(msgspec.Struct):
    """What a picture is made of."""

    prompt: str
    width: int = 512
    scale: float = 1.0
    style: Literal["plain", "rich"] = "plain"
    seed: int | None = None
    points: list[tuple[int, int]] = []


class Picture(msgspec.Struct):
    """What became of it."""

    prompt: str
    width: int
    scale: float
    style: str
    seed: int | None
    mates: int


@jitney.deployment(group_by=("width",), max_batch_size=64)
def pictures(prompts: list[Prompt]) -> list[Picture]:
    """Structs; `mates` says with how many it shared its batch."""
    wait_at_gate()
    count = len(prompts)
    return [Picture(p.prompt, p.width, p.scale, p.style, p.seed, count) for p in prompts]
