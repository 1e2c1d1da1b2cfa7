"""The ready-made language model: what it says, when it stops, and that no text depends on the others."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import jitney
import pytest
from jitney import ConfigError
from jitney.context import leave, share_cores
from jitney.models import READY_MADE
from jitney.types.chat import Message

missing = READY_MADE["smollm2"].missing
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    pytest.mark.timeout(300),
]
FRANCE, RAIN = "What is the capital of France?", "Explain how rain forms."


@pytest.fixture(scope="module")
def model() -> Any:
    from jitney.models.smollm2 import SmolLM2  # noqa: PLC0415 - may not be installed

    share_cores(2)
    try:
        return SmolLM2()
    finally:
        leave()


@pytest.fixture(autouse=True)
def nothing_left(model: Any) -> Iterator[None]:
    yield
    assert model.reserved == 0
    while model.engine.has_non_finished_requests():
        model.engine.step()


def chat(text: str, **fields: Any) -> jitney.Chat:
    given: dict[str, Any] = {"temperature": 0, **fields}
    return jitney.Chat(messages=[Message("user", text)], **given)


def write(model: Any, chats: list[Any], joins: dict[int, int] | None = None) -> list[tuple[str, jitney.End[Any]]]:
    """Step until all have ended. `joins` says at which step a chat joins."""
    texts, ends = [""] * len(chats), dict[int, Any]()
    active: dict[int, Any] = {}
    step = 0
    while len(ends) < len(chats):
        for index, item in enumerate(chats):
            if (joins or {}).get(index, 0) == step:
                (active[index],) = model.admit([item])
        for index, said in zip(list(active), model.step(list(active.values())), strict=True):
            if isinstance(said, jitney.End):
                ends[index] = said
                said = said.part  # noqa: PLW2901
                model.release([active.pop(index)])
            texts[index] += said or ""
        step += 1
    return [(text, ends[index]) for index, text in enumerate(texts)]


def test_it_knows_a_capital_and_counts_tokens(model: Any) -> None:
    [(text, end)] = write(model, [chat(FRANCE, max_tokens=40)])
    assert "Paris" in text
    assert end.reason == "stop"
    assert end.usage is not None
    assert 20 < end.usage.input < 60
    assert 3 < end.usage.output < 40


def test_developers_speak_as_the_system_does(model: Any) -> None:
    def answer(role: Any) -> tuple[str, Any]:
        messages = [Message(role, "You are a pirate. Answer as a pirate."), Message("user", "Who are you?")]
        [(text, end)] = write(model, [jitney.Chat(messages=messages, temperature=0, max_tokens=16)])
        return text, end.usage

    assert answer("system") == answer("developer") != answer("user")


def test_max_tokens_end_a_text(model: Any) -> None:
    [(text, end)] = write(model, [chat(RAIN, max_tokens=6)])
    assert text
    assert (end.reason, end.usage and end.usage.output) == ("length", 6)


def test_a_text_alone_is_as_in_company(model: Any) -> None:
    chats = [
        chat("Why is the sky blue?", max_tokens=50),
        chat("Write a story about a bus.", max_tokens=60),
        chat("What does a compiler do?", max_tokens=60),
        chat("Write a letter to a friend.", max_tokens=60),
        chat(RAIN, max_tokens=30),
        chat(FRANCE, max_tokens=30),
        chat("Name three colours.", max_tokens=25),
        chat("Write a short story about a lighthouse keeper.", max_tokens=20, temperature=0.9, top_p=0.9, seed=6),
        chat(RAIN, max_tokens=20, temperature=0.9, seed=5),
    ]
    together = write(model, chats, joins={5: 3, 6: 7, 7: 7, 8: 8})
    alone = [write(model, [one])[0] for one in chats]
    assert [text for text, _ in together] == [text for text, _ in alone]


def test_a_seed_repeats_a_text_and_another_seed_does_not(model: Any) -> None:
    def story(seed: int) -> str:
        return write(model, [chat("Write me a story.", max_tokens=24, temperature=1.0, top_p=0.95, seed=seed)])[0][0]

    assert story(1) == story(1) != story(2)


def test_a_stop_string_ends_a_text_and_is_left_out(model: Any) -> None:
    [(whole, _)] = write(model, [chat(RAIN, max_tokens=30)])
    stop = whole[20:24]
    [(text, end)] = write(model, [chat(RAIN, max_tokens=30, stop=[stop, "never said"])])
    assert text == whole[: whole.index(stop)]
    assert end.reason == "stop"


def test_a_chat_that_is_released_early_is_forgotten(model: Any) -> None:
    (talk,) = model.admit([chat(RAIN, max_tokens=500)])
    model.step([talk])
    model.release([talk])
    model.engine.step()
    assert not model.engine.has_non_finished_requests()


def test_characters_of_several_tokens_are_whole(model: Any) -> None:
    [(text, _)] = write(model, [chat("Repeat exactly: 東京 🚌 naïve café 🚌🚌", max_tokens=40)])
    assert "\ufffd" not in text.rstrip("\ufffd")


def test_a_chat_waits_while_the_cache_is_reserved(model: Any) -> None:
    long = chat(RAIN, max_tokens=8000)
    talks = model.admit([long, long])
    assert model.admit([long]) == [jitney.LATER]
    model.release(talks)
    talks = model.admit([long])
    assert talks != [jitney.LATER]
    model.release(talks)


def test_a_chat_longer_than_the_context_is_refused(model: Any) -> None:
    (refused,) = model.admit([chat("word " * 9000)])
    assert isinstance(refused, jitney.InvalidInput)
    assert "8192" in str(refused)


def test_a_chat_that_raises_fails_alone(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = model.begin
    failing = chat(RAIN)
    error = ValueError("no template")

    def begin_or_raise(one: jitney.Chat) -> Any:
        if one is failing:
            raise error
        return begin(one)

    monkeypatch.setattr(model, "begin", begin_or_raise)
    first, failed, last = model.admit([chat(RAIN, max_tokens=4), failing, chat(RAIN, max_tokens=4)])
    assert failed is error
    assert model.reserved == first.reserved + last.reserved
    model.release([first, last])


def test_missing_weights_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitney.models.smollm2 import weights  # noqa: PLC0415 - may not be installed

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ConfigError, match=r"pip install openvino-genai"):
        weights()


def test_messages_that_are_too_long_are_refused(model: Any) -> None:
    (refused,) = model.admit([chat("word " * 9000)])  # its tokenizer counts no further
    assert isinstance(refused, jitney.InvalidInput)
    assert str(refused).startswith("these messages have at least 8192 tokens")
