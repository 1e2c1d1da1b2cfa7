"""`jitney.Chat`: messages with texts and lists of parts, and what a model reads of them."""

import jitney
import msgspec
import pytest


def chat(text: str) -> jitney.Chat:
    return msgspec.json.decode(text, type=jitney.Chat)


def test_a_chat_as_clients_send_it() -> None:
    found = chat(
        """{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "name": "ann", "content":
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "unknown": 1}"""
    )
    assert found.plain() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab", "name": "ann"},
    ]
    assert (found.max_tokens, found.temperature, found.top_p, found.seed, found.stops) == (1024, 1.0, 1.0, None, [])


@pytest.mark.parametrize(
    ("stop", "stops"), [('"."', ["."]), ('["a", "b"]', ["a", "b"]), ("null", []), ("[]", []), ('["", "a"]', ["a"])]
)
def test_stops_are_a_list(stop: str, stops: list[str]) -> None:
    assert chat(f'{{"messages": [{{"role": "user", "content": "x"}}], "stop": {stop}}}').stops == stops


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{}", "messages"),
        ('{"messages": []}', "length >= 1"),
        ('{"messages": [{"role": "user"}]}', "content"),
        ('{"messages": [{"role": "robot", "content": ""}]}', "robot"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "image_url"),
        ('{"messages": [{"role": "user", "content": ""}], "max_tokens": 0}', "max_tokens"),
    ],
)
def test_what_is_no_chat_is_refused_and_named(body: str, says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says):
        chat(body)


def test_a_model_declares_more() -> None:
    class Talk(jitney.Chat):
        mood: str = "calm"

    found = msgspec.json.decode('{"messages": [{"role": "user", "content": "x"}], "mood": "gay"}', type=Talk)
    assert (found.mood, found.plain()) == ("gay", [{"role": "user", "content": "x"}])
