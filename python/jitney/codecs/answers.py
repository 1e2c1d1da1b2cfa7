"""What `predict` returned: whether it is an answer for each item of its batch, and as which arrays."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, cast

from jitney.annotations import is_named_tuple
from jitney.arrays import NO_TABLE, TABLES
from jitney.codecs.plain import is_array
from jitney.errors import InvalidOutput
from jitney.host import dtype_name, on_host
from jitney.types import DTYPES

_SCALARS: Final = (str, bytes, bytearray, int, float, complex, bool)


def check(output: Any, count: int) -> None:
    """Raise InvalidOutput, naming expected and got, unless `output` holds one answer for each of `count` items."""
    if isinstance(output, list):
        answers = cast("list[Any]", output)
        if len(answers) != count:
            raise InvalidOutput(_wrong_number(len(answers), count))
    elif is_array(output):
        _check_rows("an array", output, count)
    elif named := named_arrays(output):
        for name, array in named.items():
            _check_rows(f"`{name}`,", array, count)
    else:
        raise InvalidOutput(f"predict must return {_expected(count)}, but it returned {_got(output)}")


def check_one(output: Any, *, may_be_none: bool) -> None:
    """Raise InvalidOutput unless `output` can be the answer of a `predict` that takes one item.

    None is one only if the annotation says so: elsewhere it comes of a `return` that is missing.
    """
    if (output is None and not may_be_none) or inspect.isgenerator(output) or inspect.isawaitable(output):
        raise InvalidOutput(f"predict must return the answer of one item, but it returned {_got(output)}")


def named_arrays(output: Any) -> dict[str, Any]:
    """Tell the arrays of a dataclass or NamedTuple of arrays by name; nothing if it is something else."""
    kind = cast("type[Any]", type(output))
    if is_named_tuple(kind):
        named: dict[str, Any] = output._asdict()
    elif is_dataclass(output) and not isinstance(output, type):
        named = {row.name: getattr(output, row.name) for row in fields(output)}
    else:
        return {}
    return named if named and all(is_array(value) for value in named.values()) else {}


def listed(value: Any) -> Any:
    """Return an array of texts, times or any objects as lists, whose values are then looked at one by one.

    Everything else is returned as it is; raises InvalidOutput for a DataFrame, whose columns have names.
    """
    if not is_array(value):
        return value
    _refuse_table(value)
    if cast("type[Any]", type(value)).__module__.partition(".")[0] not in _OF_TABLES:
        return value
    import numpy as np

    array: Any = np.asarray(value)
    if array.dtype.kind in "Mm":
        array = array.astype(f"{array.dtype.kind}8[us]")
    return array.tolist() if array.dtype.kind in _OF_OBJECTS else value


def _refuse_table(value: Any) -> None:
    if cast("type[Any]", type(value)).__name__ == "DataFrame":
        raise InvalidOutput(f"predict returned a DataFrame; {NO_TABLE}")


_OF_TABLES: Final = ("numpy", *TABLES)
"""Libraries whose arrays, or columns, may hold anything."""
_OF_TEXTS: Final = "UTO"
_OF_OBJECTS: Final = "USTOMm"
"""Kinds of numpy dtypes: texts, bytes, numpy's newer texts, objects, instants and times."""


def host_array(value: Any) -> Any:
    """Return a C-contiguous numpy array in this machine's byte order; raises InvalidOutput if that cannot be.

    A DataFrame cannot be: its columns have names. Tensors on a device are copied to the host; bfloat16, which numpy
    lacks, becomes float32.
    """
    import numpy as np

    _refuse_table(value)
    array = on_host(value)
    _check_dtype(array.dtype)
    return np.ascontiguousarray(array) if array.ndim else array


def dtype_fault(dtype: Any) -> str | None:
    """Say what of this dtype cannot cross to another process, and why; None if it can."""
    if dtype_name(dtype) not in DTYPES:
        return f"an array of {dtype.name}; arrays can hold {', '.join(DTYPES)}"
    if not dtype.isnative:
        return f"an array in foreign byte order ({dtype.str}); use .astype({dtype.name!r})"
    return None


def _check_dtype(dtype: Any) -> None:
    fault = dtype_fault(dtype)
    if fault is not None:
        hint = "; for texts annotate it as `-> list[str]`" if dtype.kind in _OF_TEXTS else ""
        raise InvalidOutput(f"predict returned {fault}{hint}")


def _check_rows(what: str, array: Any, count: int) -> None:
    shape: Any = getattr(array, "shape", None)
    if shape is None:
        shape = host_array(array).shape
    if len(shape) == 0:
        raise InvalidOutput(f"predict must return {_expected(count)}, but it returned {what} without axes (a scalar)")
    if shape[0] != count:
        raise InvalidOutput(f"{_wrong_number(int(shape[0]), count)}: {what} of shape {tuple(map(int, shape))}")
    if type(array).__module__ == "numpy" and dtype_name(array.dtype) != "bfloat16":
        _check_dtype(array.dtype)


def _wrong_number(got: int, count: int) -> str:
    few = "too few" if got < count else "too many"
    answers = "1 answer" if got == 1 else f"{got} answers"
    return f"predict returned {answers} for a batch of {count}: {few}; expected {count}, one per item, in order"


def _expected(count: int) -> str:
    return f"a list of {count}, an array with {count} rows, or a dataclass or NamedTuple of such arrays"


_HINTS: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (lambda output: output is None, "None (is a `return` missing?)"),
    (lambda output: inspect.isgenerator(output) or inspect.isasyncgen(output), "a generator (streams come later)"),
    (inspect.isawaitable, "a coroutine (write `def predict`, not `async def`)"),
    (lambda output: isinstance(output, tuple), "a tuple (use a list, or a NamedTuple of arrays)"),
    (lambda output: isinstance(output, dict), "a dict (use a list of dicts, or a dataclass or NamedTuple of arrays)"),
)


def _got(output: Any) -> str:
    for applies, hint in _HINTS:
        if applies(output):
            return hint
    kind = type(output).__qualname__
    return f"one {kind}, {str(output)[:40]!r}" if isinstance(output, _SCALARS) else f"a {kind}"
