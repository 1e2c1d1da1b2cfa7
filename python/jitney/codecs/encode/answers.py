"""What `predict` returned: whether it is an answer for each item of its batch, and as which arrays."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, cast

from jitney.codecs.arrays import check_dtype, host_array, is_array
from jitney.errors import InvalidOutput
from jitney.signature.annotations import is_named_tuple
from jitney.types.host import dtype_name

_SCALARS: Final = (str, bytes, bytearray, int, float, complex, bool)


def check(output: Any, count: int, method: str) -> None:
    """Raise InvalidOutput, naming expected and got, unless `output` holds one answer for each of `count` items."""
    if isinstance(output, list):
        answers = cast("list[Any]", output)
        if len(answers) != count:
            raise InvalidOutput(_wrong_number(method, len(answers), count))
    elif is_array(output):
        _check_rows(method, "an array", output, count)
    elif named := named_arrays(output):
        for name, array in named.items():
            _check_rows(method, f"`{name}`,", array, count)
    else:
        raise InvalidOutput(f"{method} must return {_expected(count)}, but it returned {_got(output)}")


def check_one(output: Any, method: str, *, may_be_none: bool) -> None:
    """Raise InvalidOutput unless `output` can be the answer of a `predict` that takes one item.

    None is one only if the annotation says so: elsewhere a `return` is missing.
    """
    if (output is None and not may_be_none) or inspect.isgenerator(output) or inspect.isawaitable(output):
        raise InvalidOutput(f"{method} must return the answer of one item, but it returned {_got(output)}")


def named_arrays(output: Any) -> dict[str, Any]:
    """Return the arrays of a dataclass or NamedTuple of arrays by name; nothing if it is something else."""
    kind = cast("type[Any]", type(output))
    if is_named_tuple(kind):
        named: dict[str, Any] = output._asdict()
    elif is_dataclass(output) and not isinstance(output, type):
        named = {row.name: getattr(output, row.name) for row in fields(output)}
    else:
        return {}
    return named if named and all(is_array(value) for value in named.values()) else {}


def _check_rows(method: str, what: str, array: Any, count: int) -> None:
    shape: Any = getattr(array, "shape", None)
    if shape is None:
        shape = host_array(array).shape
    if len(shape) == 0:
        raise InvalidOutput(f"{method} must return {_expected(count)}, but it returned {what} without axes (a scalar)")
    if shape[0] != count:
        raise InvalidOutput(f"{_wrong_number(method, int(shape[0]), count)}: {what} of shape {tuple(map(int, shape))}")
    if type(array).__module__ == "numpy" and dtype_name(array.dtype) != "bfloat16":
        check_dtype(array.dtype)


def _wrong_number(method: str, got: int, count: int) -> str:
    few = "too few" if got < count else "too many"
    answers = "1 answer" if got == 1 else f"{got} answers"
    return f"{method} returned {answers} for a batch of {count}: {few}; expected {count}, one per item, in order"


def _expected(count: int) -> str:
    return f"a list of {count}, an array with {count} rows, or a dataclass or NamedTuple of such arrays"


_HINTS: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (lambda output: output is None, "None (is a `return` missing?)"),
    (
        lambda output: inspect.isgenerator(output) or inspect.isasyncgen(output),
        "a generator (annotate what its parts are, as in `-> Iterator[list[jitney.Step[str]]]`)",
    ),
    (
        inspect.isawaitable,
        "a coroutine (write `async def predict`, and `await` what it calls: `return await self.other(item)`)",
    ),
    (lambda output: isinstance(output, tuple), "a tuple (use a list, or a NamedTuple of arrays)"),
    (lambda output: isinstance(output, dict), "a dict (use a list of dicts, or a dataclass or NamedTuple of arrays)"),
)


def _got(output: Any) -> str:
    for applies, hint in _HINTS:
        if applies(output):
            return hint
    kind = type(output).__qualname__
    return f"one {kind}, {str(output)[:40]!r}" if isinstance(output, _SCALARS) else f"a {kind}"
