"""The official Python client against `/v1/completions`."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from harness import Server, serving
from openai_clients import client_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "chatting.py") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def test_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="go_on", prompt="abc", max_tokens=3)
    assert (answer.object, answer.model) == ("text_completion", "go_on")
    assert answer.id.startswith("cmpl-")
    [choice] = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, " 3 4 5", "length", None)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 3, 6)
    assert client.completions.create(model="upper", prompt="abc").choices[0].text == "ABC"
    tokens = client.completions.create(model="go_on", prompt=[7, 8], max_tokens=1)
    assert tokens.choices[0].text == " 2"


def test_a_stream(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = client.completions.create(model="go_on", prompt="abc", max_tokens=3, stream=True, stream_options=options)
    *chunks, last = list(stream)
    assert [chunk.choices[0].text for chunk in chunks] == [" 3", " 4", " 5", ""]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "length"]
    assert {(chunk.id, chunk.object) for chunk in chunks} == {(last.id, "text_completion")}
    assert last.choices == [] and last.usage is not None and last.usage.total_tokens == 6
    whole = client.completions.create(model="upper", prompt="abc", stream=True)
    assert [chunk.choices[0].text for chunk in whole] == ["ABC", ""]


def test_several_prompts_with_several_answers(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="go_on", prompt=["a", "abc"], n=2, max_tokens=1, seed=10)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, " 11"),
        (1, " 12"),
        (2, " 13"),
        (3, " 14"),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 4)
    chunks = list(client.completions.create(model="go_on", prompt=["a", "abc"], n=2, max_tokens=2, stream=True))
    texts = ["", "", "", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [" 1 2", " 1 2", " 3 4", " 3 4"]


@pytest.mark.parametrize(
    ("model", "fields", "param", "says"),
    [
        ("upper", {"prompt": [1]}, "prompt", "reads texts, not tokens"),
        ("upper", {"max_tokens": 5}, "max_tokens", "does not take it, got `5`"),
        ("go_on", {"echo": True}, "echo", "does not take it"),
        ("go_on", {"suffix": "x"}, "suffix", "does not take it"),
        ("go_on", {"best_of": 2}, "best_of", "does not take it"),
        ("go_on", {"logprobs": 1}, "logprobs", "does not take it"),
        ("go_on", {"prompt": []}, "prompt", "the list is empty"),
        ("go_on", {"prompt": None}, "prompt", "is missing"),
        ("go_on", {"prompt": 7}, "prompt", "expected a string or a list"),
        ("go_on", {"prompt": ["a", 7]}, "prompt[1]", "expected a string"),
        ("go_on", {"prompt": ["a"] * 100, "n": 100}, "n", "10000 texts; one request may have 2048"),
        ("go_on", {"max_tokens": "many"}, "max_tokens", "int"),
    ],
)
def test_what_is_wrong_is_named(
    client: openai.OpenAI, model: str, fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/completions", cast_to=object, body={"model": model, "prompt": "a", **fields})
    assert caught.value.param == param, caught.value.body
    assert says in caught.value.message
    with pytest.raises(openai.NotFoundError, match='has task="chat", and this route needs task="completion"'):
        client.completions.create(model="echo", prompt="a")
