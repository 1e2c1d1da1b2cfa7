"""Arrays and tensors of any library: which values are one, and as what they cross to another process."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from functools import lru_cache
from types import NoneType
from typing import Any, Final, cast

from jitney.errors import InvalidOutput
from jitney.signature.arrays import NO_TABLE, TABLES
from jitney.types.arrays import DTYPES
from jitney.types.host import dtype_name, on_host
from jitney.types.image import Image, is_pillow_type


def is_array(value: object) -> bool:
    """Whether this is an array or tensor of any library; numpy's scalars are arrays without axes."""
    return is_array_type(type(value))


@lru_cache(maxsize=1024)
def is_array_type(kind: type[Any]) -> bool:
    """Whether instances of this type are arrays; a question asked for every answer, so it is asked once per type.

    Texts and bytes of numpy's (np.str_) are not: they are `str` and `bytes`.
    """
    if issubclass(kind, (Image, str, bytes)) or is_pillow_type(kind):
        return False
    return hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")


def listed(value: Any) -> Any:
    """Return an array of texts, times or any objects as lists, whose values are then looked at one by one.

    Everything else is returned unchanged; raises InvalidOutput for a DataFrame, whose columns have names.
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
        raise InvalidOutput(f"an answer is a DataFrame; {NO_TABLE}")


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
    check_dtype(array.dtype)
    return np.ascontiguousarray(array) if array.ndim else array


def dtype_fault(dtype: Any) -> str | None:
    """Say what of this dtype cannot cross to another process, and why; None if it can."""
    if dtype_name(dtype) not in DTYPES:
        return f"an array of {dtype.name}; arrays can hold {', '.join(DTYPES)}"
    if not dtype.isnative:
        return f"an array in foreign byte order ({dtype.str}); use .astype({dtype.name!r})"
    return None


def check_dtype(dtype: Any) -> None:
    """Raise InvalidOutput if arrays of this dtype cannot cross to another process."""
    fault = dtype_fault(dtype)
    if fault is not None:
        hint = "; for texts annotate it as `-> list[str]`" if dtype.kind in _OF_TEXTS else ""
        raise InvalidOutput(f"an answer is {fault}{hint}")


_RANKS: Final = {"b": 0, "u": 1, "i": 1, "f": 2}
"""Kinds of numbers: those in lists become what is meant unless that takes something from them. numpy would also make
0 of 0.5, and NaN of None."""


MOST_AXES: Final = 64
"""The most axes of an array: numpy's own bound."""
_ELEMENTS: Final = frozenset({bool, int, float, NoneType})
_LISTS: Final = frozenset({list, tuple})


def unexpected_in(values: Any, axes: int = 1) -> str | None:
    """Name what in nested lists is not a number, a boolean or None; None if all are. ValueError for too many axes.

    numpy itself would make texts of all elements, and give each text the room of the longest one.
    """
    if axes > MOST_AXES:
        raise ValueError(f"expected at most {MOST_AXES} axes, got more")
    kinds: set[type[Any]] = set(map(type, values))
    other = next((kind for kind in kinds if kind not in _ELEMENTS and kind not in _LISTS), None)
    if other is not None:
        return "object" if other is dict else other.__qualname__
    if kinds.isdisjoint(_LISTS):
        return None
    found = (unexpected_in(part, axes + 1) for part in values if type(part) in _LISTS)
    return next((what for what in found if what is not None), None)


def from_lists(value: Any, dtype: str) -> Any:
    """Return the numbers of nested lists, which have no dtype, as an array; ValueError if they do not fit the dtype."""
    import numpy as np

    found = np.asarray(value)
    if found.size and _RANKS.get(found.dtype.kind, 3) > _RANKS.get(np.dtype(dtype).kind, -1):
        raise ValueError(f"got {found.dtype.name}")
    with np.errstate(all="ignore"):  # values that do not fit are reported below
        array = np.array(value, dtype)
    if not _fits(found, array):
        raise ValueError(f"got {found.dtype.name} with a number that does not fit")
    return array


def _fits(found: Any, array: Any) -> bool:
    """Whether both have the same numbers: numpy reports losses of Python's integers only."""
    import numpy as np

    if array.dtype.kind in "iu":
        return bool(np.array_equal(array.reshape(found.shape), found))
    return array.dtype.kind != "f" or bool((np.isfinite(array).reshape(found.shape) == np.isfinite(found)).all())
