"""Images and arrays inside of items: how a document holds them, and what `predict` gets.

An image is its file. An array is nested lists, a `.npy` file, nothing but its elements (if its shape is fixed), or an
object `{"dtype", "shape", "data"}`. In msgpack bytes are raw, in JSON they are base64. msgspec passes the class of a
field to `dec_hook`, and not what `jitney.Tensor` says of it: so an array is made first, and its dtype and shape are
settled afterwards (`settled`).
"""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

import io
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Final, cast

from jitney.codecs.arrays import MOST_AXES, from_lists, unexpected_in
from jitney.codecs.decode.pixels import ItemPixels
from jitney.errors import InvalidInput
from jitney.signature.arrays import ANY_DTYPE, ArraySpec, is_array_type
from jitney.signature.hints import is_image, show
from jitney.types.arrays import DTYPES
from jitney.types.base64 import from_base64
from jitney.types.image import Image

_NPY: Final = b"\x93NUMPY"
_KEYS: Final = ("dtype", "shape", "data")
_OBJECT: Final = "an object of `dtype`, `shape` and `data`"
_BYTES: Final = (bytes, bytearray, memoryview)
_LONGEST_AXIS: Final = (1 << 63) - 1
"""Elements: what numpy counts with."""


def read_image(data: bytes, max_pixels: int | None) -> Image:
    """Return an image whose pixels are decoded here: a bad one must never reach `predict`."""
    image = Image(data, max_pixels=max_pixels)
    image.to_pil()  # the header goes first: it says whether there are too many pixels
    return image


def media_hook(pixels: ItemPixels | None) -> Callable[[Any, Any], Any]:
    """Return the `dec_hook` of msgspec for images and arrays; what it raises about a value is a ValueError.

    Without `pixels` it reads answers, which the model itself made.
    """

    def make(kind: Any, value: Any) -> Any:
        if pixels is not None:
            try:
                pixels.count()
            except InvalidInput as error:
                raise ValueError(error.message) from error  # msgspec adds the path of the field
        if is_image(kind):
            return image_of(value, pixels)
        if is_array_type(kind):
            return array_of(value, may_be_texts=pixels is None)
        raise NotImplementedError(f"a {show(kind)} cannot be decoded")

    return make


def answer_hook(kind: Any, value: Any) -> Any:
    """Be the `dec_hook` of a program that reads an answer: images are decoded when they are used."""
    if is_image(kind):
        return Image(_bytes_of(value, "an image"))
    if is_array_type(kind):
        array = array_of(value)
        return _torch(array) if show(kind).endswith("Tensor") else array
    raise NotImplementedError(f"a {show(kind)} cannot be decoded")


def _torch(array: Any) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return cast("Any", torch).from_numpy(array)


def image_of(value: Any, pixels: ItemPixels | None) -> Image:
    """Return the image that a value of a document is; ValueError if it is none, or one too many for its item."""
    if isinstance(value, Image):
        return value
    try:
        image = Image(_bytes_of(value, "an image"), max_pixels=pixels and pixels.most)
        if pixels is not None:
            pixels.add(image)
        image.to_pil()
        return image
    except InvalidInput as error:
        raise ValueError(error.message) from error  # msgspec adds the path of the field


def array_of(value: Any, *, may_be_texts: bool = True) -> Any:
    """Return the array that a value of a document is; ValueError if it is none. Its dtype may have to be settled.

    Arrays in answers may be lists of texts; the array of an item may not.
    """
    import numpy as np

    if isinstance(value, np.ndarray):
        return cast("Any", value)
    if isinstance(value, dict):
        return _of_object(cast("dict[Any, Any]", value))
    numbers, elements, refused = _unsettled()
    if isinstance(value, (*_BYTES, str)):
        data = _bytes_of(value, "an array")
        return _of_file(data) if data.startswith(_NPY) else np.frombuffer(data, np.uint8).view(elements)
    if not isinstance(value, (list, tuple, int, float)):
        kind = cast("type[Any]", type(value)).__qualname__
        raise ValueError(f"expected an array as nested lists, base64 or {_OBJECT}, got {kind}")
    if isinstance(value, (list, tuple)) and not may_be_texts:
        unexpected = unexpected_in(cast("Any", value))
        if unexpected is not None:
            array: Any = np.empty(0).view(refused)
            array.unexpected = unexpected
            return array
    try:
        return np.asarray(cast("Any", value)).view(numbers)
    except (ValueError, OverflowError):
        raise ValueError("expected lists of equal length at each depth") from None


def settled(spec: ArraySpec, array: Any, path: str) -> Any:
    """Return an array as its field is declared; InvalidInput with the path of the field if it is another one."""
    import numpy as np

    numbers, elements, refused = _unsettled()
    if not isinstance(array, cast("Any", np).ndarray):
        return array  # of another library, in an answer
    try:
        if isinstance(array, refused):
            raise ValueError(_expected(spec, f"got {array.unexpected}"))
        if isinstance(array, numbers):
            array = _of_numbers(spec, array.view(np.ndarray))
        elif isinstance(array, elements):
            array = _of_elements(spec, array.view(np.ndarray))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{path}: {error}", field=path) from None
    if not spec.allows(array.dtype.name) or not spec.fits(array.shape):
        got = f"{array.dtype.name} of shape {tuple(map(int, array.shape))}"
        raise InvalidInput(f"{path}: expected {spec.show()}, got {got}", field=path)
    return array


def _expected(spec: ArraySpec, got: str) -> str:
    """Say what the lists of a field had, in the words for a parameter that is an array."""
    return f"expected {spec.dtype} elements, {got}"


@cache
def _unsettled() -> tuple[Any, Any, Any]:
    """Return the classes of arrays that do not have their dtype yet: numbers of lists, elements alone, and no numbers.

    The last are empty and wait for the path and the dtype of their field, which the error names.
    """
    import numpy as np

    return type("Numbers", (np.ndarray,), {}), type("Elements", (np.ndarray,), {}), type("Refused", (np.ndarray,), {})


def _bytes_of(value: Any, what: str) -> bytes:
    """Return bytes unchanged, and those of base64 as JSON and `data:` URLs have it."""
    if isinstance(value, _BYTES):
        return bytes(cast("bytes", value))
    if not isinstance(value, str):
        raise ValueError(f"expected {what}, got {cast('type[Any]', type(value)).__qualname__}")
    head, comma, rest = value[:256].partition(",")
    is_url = comma and head.startswith("data:") and head.endswith(";base64")
    try:
        return from_base64(rest + value[256:] if is_url else value)
    except ValueError as error:
        raise ValueError(f"expected {what} in base64: {error}") from None


def _of_object(value: dict[Any, Any]) -> Any:
    if set(value) != set(_KEYS):
        raise ValueError(f"expected an array as {_OBJECT}, got {', '.join(map(str, value)) or 'an empty object'}")
    dtype, shape = value["dtype"], value["shape"]
    if dtype not in DTYPES:
        raise ValueError(f"the dtype of an array is one of {', '.join(DTYPES)}, not {dtype!r}")
    if not isinstance(shape, (list, tuple)):
        raise ValueError(
            f"the shape of an array is a list of lengths, got {cast('type[Any]', type(shape)).__qualname__}"
        )
    return _shaped(_bytes_of(value["data"], "the data of an array"), dtype, tuple(cast("list[int]", shape)))


def _check_shape(shape: tuple[int, ...]) -> None:
    """Raise ValueError unless these are lengths whose product is quick to compute and short to show."""
    if len(shape) > MOST_AXES:
        raise ValueError(f"expected at most {MOST_AXES} axes, got {len(shape)}")
    for length in shape:
        if type(length) is not int:
            kind = cast("type[Any]", type(length)).__qualname__
            raise ValueError(f"the shape of an array is a list of lengths, got {kind}")
        if not 0 <= length <= _LONGEST_AXIS:
            got = "a negative one" if length < 0 else f"one above {_LONGEST_AXIS}"
            raise ValueError(f"the shape of an array is a list of lengths, got {got}")


def _shaped(data: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return a copy of these elements, which `predict` may write to."""
    import numpy as np

    _check_shape(shape)
    kind = np.dtype(dtype)
    expected, got = prod(shape) * kind.itemsize, len(data)
    if expected != got:
        raise ValueError(f"{kind.name} of shape {shape} has {expected} bytes, got {got}")
    array = np.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="), copy=True)
    if kind.kind == "b" and (array.view(np.uint8) > 1).any():
        raise ValueError("expected bool elements of 0 or 1, got other bytes")
    return array


def _of_file(data: bytes) -> Any:
    import numpy as np
    from numpy.lib import format as npy

    stream = io.BytesIO(data)
    try:
        read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except Exception as error:
        raise ValueError(f"this .npy file cannot be read: {error}") from None
    if dtype.name not in DTYPES:
        raise ValueError(f"this .npy file has {dtype.name}; the dtype of an array is one of {', '.join(DTYPES)}")
    elements = memoryview(data)[stream.tell() :]
    array = _shaped(elements, dtype, shape[::-1] if is_fortran else shape)
    return np.ascontiguousarray(array.T) if is_fortran else array


def _of_numbers(spec: ArraySpec, numbers: Any) -> Any:
    import numpy as np

    if spec.dtype == ANY_DTYPE:
        return numbers
    has_objects = numbers.dtype.kind == "O"  # None, or whole numbers beyond 64 bits
    if has_objects and not spec.dtype.startswith("float"):
        has_null = any(number is None for number in numbers.flat)
        raise ValueError(_expected(spec, "got null" if has_null else "got a number that does not fit"))
    try:
        # JSON has no NaN: null stands for it.
        return from_lists(np.array(numbers, np.float64) if has_objects else numbers, spec.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(_expected(spec, str(error))) from None


def _of_elements(spec: ArraySpec, data: Any) -> Any:
    if spec.shape is None or None in spec.shape:
        raise ValueError(f"expected {spec.show()}: bytes alone do not say their shape; send a .npy file, or {_OBJECT}")
    return _shaped(data.data, spec.dtype, cast("tuple[int, ...]", spec.shape))
