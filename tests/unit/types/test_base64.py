"""Base64 in texts: what is taken, and what a refusal says."""

import base64
from typing import Any

import msgspec
import pytest
from jitney.types.base64 import from_base64


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 1000])
def test_bytes_come_back(length: int) -> None:
    data = bytes(range(256)) * 4
    assert from_base64(base64.b64encode(data[:length]).decode()) == data[:length]


def test_the_slower_reader_is_not_asked_if_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> bytes:
        raise AssertionError

    monkeypatch.setattr(base64, "b64decode", never)
    assert from_base64("AAEC") == b"\x00\x01\x02"


@pytest.mark.parametrize("text", ["QQ", "Q===", "Q Q=", "QQ==QQ==", "QQ==\n", "-_8=", "====", "ü", "A"])
def test_what_is_no_base64_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        from_base64(text)
    assert not isinstance(refused.value, msgspec.ValidationError)
    assert str(refused.value)
