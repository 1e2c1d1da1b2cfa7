"""Array types in annotations: which annotations are arrays, and with what dtype and shape. Never imports numpy."""

import sys
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from jitney.errors import TargetError
from jitney.signature.hints import unwrapped
from jitney.types.arrays import DTYPES, Tensor

ANY_DTYPE = "any"
"""The dtype of a result whose annotation does not say it; documentation only."""

TABLES = ("pandas", "polars")
"""Libraries whose columns may hold anything, so that an annotation of theirs does not say what comes."""
_ABSTRACT = ("floating", "inexact", "number", "generic")
"""Scalars of numpy's that float32 is one of, so that an array of them may be of it."""
NO_TABLE = "return df.to_dict('records'), one dict a row, or df.to_numpy() for numbers"
"""What to do instead of returning a DataFrame."""


@dataclass(frozen=True)
class ArraySpec:
    """One array of one item, without the batch axis; `shape` None is open in rank, an axis of None in length."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    is_stacked: bool = True
    """Whether `predict` gets one array for a batch, so that all have one shape; else it gets a list of arrays."""

    def to_dict(self) -> dict[str, object]:
        """Return it as the manifest has it."""
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "dtype": self.dtype, "shape": shape, "is_stacked": self.is_stacked}

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether one item's array of this shape is meant."""
        if self.shape is None:
            return True
        return len(self.shape) == len(shape) and all(
            axis is None or axis == got for axis, got in zip(self.shape, shape, strict=True)
        )

    def allows(self, dtype: str) -> bool:
        """Whether an array of this dtype is meant."""
        return self.dtype in (ANY_DTYPE, dtype)

    def show(self) -> str:
        """Write it as a message does: float32 of shape (224, ?, 3)."""
        if self.shape is None:
            return "any shape" if self.dtype == ANY_DTYPE else f"{self.dtype} of any shape"
        axes = ["?" if axis is None else str(axis) for axis in self.shape]
        return f"{self.dtype} of shape ({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def is_array_type(annotation: Any) -> bool:
    """Whether an annotation is an array's: numpy's, or a class that converts itself (torch.Tensor, jax.Array)."""
    base, extras = unwrapped(annotation)
    if any(isinstance(extra, Tensor) for extra in extras):
        return True
    kind = get_origin(base) or base
    if not isinstance(kind, type):
        return False
    if kind.__module__.partition(".")[0] in ("jitney", "PIL"):
        return False
    return is_numpy(kind) or hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")


def is_column(where: str, annotation: Any) -> bool:
    """Whether this is a column of pandas or polars, or an index, and no Tensor says what it contains.

    TargetError if it is a whole table.
    """
    base, extras = unwrapped(annotation)
    kind = get_origin(base) or base
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] not in TABLES:
        return False
    if kind.__name__ == "DataFrame":
        raise TargetError(f"{where} returns a DataFrame; {NO_TABLE}")
    return is_array_type(kind) and not any(isinstance(extra, Tensor) for extra in extras)


def is_numpy(kind: type) -> bool:
    """Whether this is np.ndarray."""
    return kind.__name__ == "ndarray" and kind.__module__.partition(".")[0] == "numpy"


def array_spec(where: str, name: str, annotation: Any, *, any_dtype: bool = False) -> ArraySpec:
    """Read dtype and shape from an annotation. With `any_dtype` (results) arrays need not be numpy's."""
    place = f"{where}: `{name}`" if name else where
    annotation, extras = unwrapped(annotation)
    tensor = next((extra for extra in extras if isinstance(extra, Tensor)), None)
    if not is_array_type(annotation):
        raise TargetError(f"{place}: jitney.Tensor describes an np.ndarray, not {annotation}")
    kind = get_origin(annotation) or annotation
    if not any_dtype and not is_numpy(kind):
        raise TargetError(f"{place} is {kind.__qualname__}: arrays come as np.ndarray; convert it in `predict`")
    dtype = _dtype_name(get_args(annotation))
    if tensor is not None and dtype in _ABSTRACT:
        dtype = None
    if tensor is not None and tensor.dtype is not None:
        if dtype in DTYPES and dtype != tensor.dtype:
            raise TargetError(f"{place}: an array of {dtype}, but its jitney.Tensor says {tensor.dtype}; say it once")
        return ArraySpec(name, tensor.dtype, tensor.shape)
    if dtype is not None and dtype not in DTYPES:
        raise TargetError(f"{place}: arrays of {dtype} cannot be served; supported are {', '.join(DTYPES)}")
    if tensor is not None:
        return ArraySpec(name, dtype or "float32", tensor.shape)
    return ArraySpec(name, dtype or (ANY_DTYPE if any_dtype else "float32"), None)


def _dtype_name(arguments: tuple[Any, ...]) -> str | None:
    """Read the dtype of np.ndarray[Any, np.dtype[np.float32]], which is NDArray[np.float32]; it may be none of ours."""
    scalar = get_args(arguments[1])[0] if len(arguments) > 1 and get_args(arguments[1]) else Any
    scalar = get_origin(scalar) or scalar
    if scalar is Any or not isinstance(scalar, type):
        return None
    name = scalar.__name__
    if name not in DTYPES:
        numpy = sys.modules.get("numpy")
        try:  # names of C types (np.longlong) have a sized twin; abstract types (np.floating) have none
            abstract = name.endswith(("floating", "integer", "inexact", "number", "generic"))
            name = str(numpy.dtype(scalar).name) if numpy is not None and not abstract else name
        except TypeError:
            pass
    return name
