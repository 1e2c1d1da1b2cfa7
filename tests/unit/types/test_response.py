"""`jitney.Response`: what it takes, and how it is encoded."""

from typing import Any

import jitney
import pytest
from batches import one
from fake_link import TAG_BYTES, TAG_JSON, TAG_TEXT


def html(texts: list[str]) -> list[jitney.Response | str]:
    return [
        text if text == "plain" else jitney.Response(f"<b>{text}</b>", media_type="text/html; charset=utf-8")
        for text in texts
    ]


def shaded(texts: list[str]) -> list[Any]:
    return [jitney.Response({"text": text}, headers={"X-Shade": "grey", "cache-control": "no-store"}) for text in texts]


def test_a_response_has_its_media_type_and_its_neighbours_have_theirs() -> None:
    assert [outcome.value for outcome in one(html, ["a", "plain"])] == [
        (TAG_BYTES, b"<b>a</b>", "text/html; charset=utf-8"),
        (TAG_TEXT, b"plain", None),
    ]


def test_headers_follow_the_media_type_and_the_content_is_encoded_as_without() -> None:
    [outcome] = one(shaded, ["a"])
    assert outcome.value == (TAG_JSON, b'{"text":"a"}', "\nx-shade: grey\ncache-control: no-store")


def test_a_response_that_the_annotation_does_not_name_is_refused() -> None:
    def predict(texts: list[str]) -> list[str]:
        return [jitney.Response(text) for text in texts]  # pyright: ignore[reportReturnType]

    [outcome] = one(predict, ["a"])
    assert outcome.reason == "invalid_output"
    assert "annotated to return str" in outcome.detail


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Content-Type", "is its media_type"),
        ("connection", "belongs to the connection"),
        ("Transfer-Encoding", "belongs to the connection"),
        ("content-length", "is set by jitney"),
        ("X-Request-Id", "is set by jitney"),
        ("x-jitney-reason", "is set by jitney"),
        ("access-control-allow-origin", "is set by jitney"),
        ("x shade", "is not the name of a header"),
    ],
)
def test_headers_that_are_not_an_authors_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jitney.Response(b"", headers={name: "a"})


def test_wrong_values_are_refused() -> None:
    for value in ("a\r\nb: c", "a\n", "", "ü"):
        with pytest.raises(ValueError, match="is not visible ASCII in one line"):
            jitney.Response(b"", headers={"x-shade": value})
    for media_type in ("html", "wav\r\nx: y", "text/html\n"):
        with pytest.raises(ValueError, match="is not a media type"):
            jitney.Response(b"", media_type)
    with pytest.raises(ValueError, match="more than 8192 bytes"):
        jitney.Response(b"", headers={"x-shade": "a" * 9000})
    with pytest.raises(TypeError, match="another Response"):
        jitney.Response(jitney.Response(b""))
