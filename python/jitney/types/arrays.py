"""What annotations and answers say of arrays: `jitney.Tensor`, `jitney.Embeddings`. Does not import numpy by itself."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from dataclasses import dataclass
from typing import Any, Final

from jitney.errors import InvalidOutput

DTYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
"""What an array may hold, as numpy names it."""


@dataclass(frozen=True)
class Tensor:
    """The dtype and the shape of one item's array, for `Annotated[np.ndarray, Tensor("uint8", (224, 224, 3))]`.

    The batch axis is not part of `shape`; None or -1 is an open axis, and no shape at all is open in rank too.
    Without a `dtype` it is that of the array next to it, as in NDArray[np.uint8], or float32.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"a Tensor's dtype is one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(_axis(axis) for axis in self.shape))


@dataclass(frozen=True)
class Embeddings:
    """What a deployment with the task "embedding" returns for its n items.

    `vectors` is an array of shape (n, d), `tokens` holds n whole numbers: how many tokens each item had. A client of
    the deployment's own route gets the vector; how many tokens it took is for APIs that say so.
    """

    vectors: Any
    tokens: Any

    def __post_init__(self) -> None:
        import numpy as np

        counts = np.asarray(self.tokens)
        if counts.dtype.kind not in "iu" and counts.size:
            raise InvalidOutput(f"the tokens of jitney.Embeddings are whole numbers, one per item, not {counts.dtype}")
        object.__setattr__(self, "tokens", counts.astype(np.int64))


TOKENS: Final = "$tokens"
"""The name under which counts of tokens cross to the front, which takes them out of the answer; no name of a user's."""


def _axis(axis: int | None) -> int | None:
    if axis is None or axis == -1:
        return None
    if type(axis) is not int or axis < 0:
        raise ValueError(f"an axis of a Tensor is a length, or None if it is open, not {axis!r}")
    return axis
