"""How a value of a program is sent, and the error if it cannot be."""

import datetime
from typing import Any

import jitney
import msgspec
import numpy as np
import pydantic
import pytest
from jitney.codecs import tags
from jitney.embedded.values import Write, writer


def arrays(dtype: str) -> Write:
    return writer({"kind": "arrays", "arrays": [{"name": "x", "dtype": dtype}]})


def test_numbers_in_lists_become_the_dtype_that_is_meant() -> None:
    for dtype, value in [
        ("float32", [[1, 2.5]]),
        ("uint8", [0, 255]),
        ("bool", [True]),
        ("int64", []),
        ("float32", 3),
        ("float32", [np.inf, np.nan]),
    ]:
        tag, [(name, shape, array)] = arrays(dtype)(value)
        assert (tag, name, shape) == (tags.TENSOR, dtype, np.shape(value))
        np.testing.assert_array_equal(array, np.array(value, dtype))


# numpy 1 warns where numpy 2 raises; either way the number is refused.
@pytest.mark.filterwarnings("ignore:NumPy will stop allowing:DeprecationWarning")
@pytest.mark.parametrize(
    ("dtype", "value", "says"),
    [
        ("int32", [1.5], "got float64"),
        ("bool", [2], "got int64"),
        ("uint8", [256], "out of bounds|does not fit"),
        ("uint8", [np.int64(300), np.int64(-1)], "int64 with a number that does not fit"),
        ("int32", [np.array([2**40])], "int64 with a number that does not fit"),
        ("float32", [1e300], "float64 with a number that does not fit"),
        ("float32", None, "got object"),
        ("float32", [1, None], "got object"),
        ("float32", "3", "got str"),
        ("float32", [[1], [1, 2]], "inhomogeneous"),
        ("float32", np.array([1, None]), "got an array of object"),
        ("float32", np.zeros(2, np.complex64), "got an array of complex64"),
        ("float32", np.zeros(2, ">f4"), "foreign byte order"),
    ],
)
def test_what_would_lose_something_is_refused_as_an_input(dtype: str, value: Any, says: str) -> None:
    with pytest.raises(jitney.InvalidInput, match=says):
        arrays(dtype)(value)


def test_a_str_that_is_no_text_is_refused_as_an_input() -> None:
    write = writer({"kind": "text"})
    assert write("grüß") == (tags.TEXT, "grüß")
    with pytest.raises(jitney.InvalidInput, match="surrogates"):
        write("\ud800")


def test_an_array_that_is_no_image_is_refused_as_an_input() -> None:
    with pytest.raises(jitney.InvalidInput, match="cannot be sent as an image"):
        writer({"kind": "image"})(np.zeros((2, 2, 7), np.float32))


def test_a_pydantic_model_may_hold_bytes_that_are_no_text() -> None:
    class Blob(pydantic.BaseModel):
        when: datetime.date = datetime.date(2026, 11, 21)
        data: bytes

    send = writer({"kind": "object", "arrays": [], "schema": {}})
    for data in (b"text", b"\xff\x00"):
        tag, packed = send(Blob(data=data))
        assert tag == tags.MSGPACK
        assert Blob.model_validate(msgspec.msgpack.decode(packed)) == Blob(data=data)
