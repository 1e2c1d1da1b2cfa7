"""Text from token ids, a piece at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitney.text import Increments, Stops


def decode(ids: list[int]) -> str:
    """A tokenizer whose tokens are bytes: the worst that one can do to a character."""
    return bytes(ids).decode("utf-8", "replace")


def words(ids: list[int]) -> str:
    """A tokenizer that writes no space before the first word, as those of SentencePiece do."""
    return " ".join("abcdefghij"[id] for id in ids)


@given(st.text(max_size=30), st.data())
def test_pieces_are_the_text_whatever_the_cuts(text: str, data: st.DataObject) -> None:
    codes = list(text.encode())
    increments, pieces = Increments(decode), list[str]()
    while codes:
        count = data.draw(st.integers(1, 5))
        pieces.append(increments(codes[:count]))
        codes = codes[count:]
    pieces.append(increments.rest())
    assert "".join(pieces) == text


def test_half_a_character_waits_for_the_rest() -> None:
    increments = Increments(decode)
    first, *others = "a🚌b".encode()
    assert [increments([first]), *(increments([other]) for other in others)] == ["a", "", "", "", "🚌", "b"]
    assert increments.rest() == ""


def test_half_a_character_at_the_end_is_given_as_one_that_is_broken() -> None:
    increments = Increments(decode)
    assert increments([*b"ab", *"🚌".encode()[:2]]) == "ab"
    assert increments.rest() == "\ufffd"
    assert increments.rest() == ""


def test_bytes_that_are_never_text_do_not_wait_without_end() -> None:
    increments = Increments(decode)
    pieces = [increments([0xFF]) for _ in range(100)]
    assert sum(map(len, pieces)) >= 96
    assert "".join(pieces) + increments.rest() == "\ufffd" * 100


def test_a_character_of_the_text_that_looks_broken_is_given() -> None:
    increments = Increments(decode)
    assert increments("a\ufffd".encode()) + increments(b"b") + increments.rest() == "a\ufffdb"


def test_spaces_between_pieces_are_those_of_the_whole_text() -> None:
    increments = Increments(words)
    assert "".join([increments([0]), increments([1, 2]), increments([]), increments([3])]) == "a b c d"


def test_a_long_text_is_not_decoded_again_for_each_token() -> None:
    seen: list[int] = []

    def count(ids: list[int]) -> str:
        seen.append(len(ids))
        return decode(ids)

    increments = Increments(count)
    for _ in range(1000):
        increments([97])
    assert max(seen) <= 2


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        ([], ["one", " two"], ["one", " two"]),
        (["."], ["one", ". two"], ["one", ""]),
        (["END"], ["a E", "N", "D b"], ["a ", "", ""]),
        (["END"], ["a E", "N", "T"], ["a ", "", "ENT"]),
        (["two", "one"], ["a one two"], ["a "]),
        (["aab"], ["aa", "ab"], ["", "a"]),
        ([""], ["x"], ["x"]),
    ],
)
def test_a_stop_string_ends_the_text_and_is_left_out(stops: list[str], pieces: list[str], expected: list[str]) -> None:
    found = Stops(stops)
    assert [found(piece)[0] for piece in pieces] == expected


@given(st.text("ab.", max_size=30), st.lists(st.text("ab.", min_size=1, max_size=3), max_size=3), st.data())
def test_a_text_ends_at_its_first_stop_string_whatever_the_pieces(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    left, said, is_over, found = text, "", False, Stops(stops)
    while left and not is_over:
        count = data.draw(st.integers(1, 4))
        piece, is_over = found(left[:count])
        said, left = said + piece, left[count:]
    said += "" if is_over else found.rest()
    assert is_over == any(stop in text for stop in stops)
    if not is_over:
        assert said == text
    else:
        assert text.startswith(said)
        assert not any(stop in said for stop in stops)
        assert any(text[len(said) :].startswith(stop) for stop in stops)
