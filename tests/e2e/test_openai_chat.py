"""The official Python client against `/v1/chat/completions`: whole answers and parts."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from harness import Serve, Server, serving, until
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from openai.types.chat.chat_completion import Choice
from openai_clients import async_client_of, client_of

TEXT = "the bus leaves at noon"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "chatting.py") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def user(text: Any) -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": "repeat it"}, {"role": "user", "content": text}]


def said(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


@pytest.mark.parametrize("model", ["echo", "gpt-echo", "uncounted", "awaited", "at_once"])
def test_a_whole_answer(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=user(TEXT))
    assert (answer.object, answer.model, len(answer.choices)) == ("chat.completion", model, 1)
    assert answer.id.startswith("chatcmpl-")
    assert answer.created > 1_700_000_000
    [choice] = answer.choices
    assert (choice.index, choice.message.role, choice.message.content) == (0, "assistant", TEXT)
    assert choice.finish_reason == "stop"
    if model.endswith("echo"):
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 5, 12)
    else:
        assert answer.usage is None, "a model that does not count"


@pytest.mark.parametrize("model", ["echo", "uncounted", "awaited", "at_once"])
def test_a_stream(client: openai.OpenAI, model: str) -> None:
    chunks = list(client.chat.completions.create(model=model, messages=user(TEXT), stream=True))
    assert said(chunks) == TEXT
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.model for chunk in chunks} == {model}
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    first, *middle, last = [chunk.choices[0] for chunk in chunks]
    assert (first.delta.role, first.delta.content) == ("assistant", "")
    assert {choice.finish_reason for choice in (first, *middle)} == {None}
    assert (last.finish_reason, last.delta.model_dump(exclude_none=True)) == ("stop", {})
    assert len(middle) == (1 if model == "at_once" else 5)


def test_the_events_are_data_alone(server: Server) -> None:
    body = {"model": "echo", "messages": user("a b"), "stream": True, "stream_options": {"include_usage": True}}
    answer = server.post("/v1/chat/completions", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = answer.body.decode().split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks[:-1])
    chunks = [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert [chunk["usage"] for chunk in chunks] == [None, None, None, None, usage]
    assert chunks[-1]["choices"] == []
    assert all(set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"} for chunk in chunks[:-1])


def test_usage_of_a_stream_is_for_those_who_ask(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(model="echo", messages=user(TEXT), stream=True, stream_options=options)
    *chunks, last = list(stream)
    assert last.choices == [] and last.usage is not None and last.usage.completion_tokens == 5
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    with pytest.raises(openai.BadRequestError, match="stream=true") as caught:
        client.chat.completions.create(model="echo", messages=user(TEXT), stream_options=options)
    assert caught.value.param == "stream_options"


def test_several_choices(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="echo", messages=user("a b"), n=3, seed=7)
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [
        (0, "7: a b"),
        (1, "8: a b"),
        (2, "9: a b"),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 9), "the prompt is one"
    chunks = list(client.chat.completions.create(model="echo", messages=user("a b"), n=3, seed=7, stream=True))
    assert [said(chunks, index) for index in range(3)] == ["7: a b", "8: a b", "9: a b"]
    ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason == "stop"]
    assert sorted(ends) == [0, 1, 2]
    unseeded = client.chat.completions.create(model="echo", messages=user("a b"), n=2)
    assert [choice.message.content for choice in unseeded.choices] == ["a b", "a b"]


def test_fields_reach_the_model(client: openai.OpenAI) -> None:
    def ask(**fields: Any) -> Choice:
        create: Any = client.chat.completions.create
        answer: ChatCompletion = create(model="echo", messages=user(TEXT), **fields)
        return answer.choices[0]

    limited = ask(max_tokens=2)
    assert (limited.message.content, limited.finish_reason) == ("the bus", "length")
    assert ask(max_completion_tokens=3).message.content == "the bus leaves"
    assert ask(stop="leaves").message.content == "the bus"
    assert ask(stop=["noon", "at"]).message.content == "the bus leaves"
    assert ask(max_tokens=None, user="me", metadata={"a": "b"}, temperature=0.2).message.content == TEXT
    assert ask(extra_body={"tools": ["hammer"]}).message.content == TEXT, "its type declares them"
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]
    answer = client.chat.completions.create(model="echo", messages=user(parts))
    assert answer.choices[0].message.content == "in parts"


@pytest.mark.parametrize(
    ("model", "fields", "param", "says"),
    [
        ("at_once", {"tools": [{"type": "function"}]}, "tools", "does not take it"),
        ("echo", {"response_format": {"type": "json_object"}}, "response_format", "does not take it"),
        ("echo", {"logprobs": True}, "logprobs", "does not take it, got `true`; leave it out"),
        ("echo", {"logit_bias": {"50": 1}}, "logit_bias", "does not take it"),
        ("echo", {"n": 129}, "n", "from 1 to 128, got 129"),
        ("echo", {"n": "two"}, "n", 'from 1 to 128, got `"two"`'),
        ("echo", {"stream": 1}, "stream", "true or false"),
        ("echo", {"stream": True, "stream_options": 1}, "stream_options", "expected an object"),
        ("echo", {"messages": []}, "messages", "length >= 1"),
        ("echo", {"messages": None}, "messages", "is missing"),
        ("echo", {"messages": user(7)}, "messages[1].content", "got `int`"),
        ("echo", {"messages": user([{"type": "image_url"}])}, "messages[1].content[0].type", "image_url"),
        ("echo", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "tool"),
        ("echo", {"max_tokens": 0}, "max_tokens", ">= 1"),
        ("echo", {"temperature": 3}, "temperature", "<= 2"),
        ("echo", {"messages": user("forbidden")}, None, "forbidden cannot be said"),
        ("echo", {"messages": user("forbidden"), "stream": True, "n": 2}, None, "forbidden cannot be said"),
        (7, {}, "model", "expected a string"),
        (None, {}, "model", "is missing"),
    ],
)
def test_what_is_wrong_is_named(
    client: openai.OpenAI, model: Any, fields: dict[str, Any], param: str | None, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", cast_to=object, body={"model": model, "messages": user(TEXT), **fields})
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", param), caught.value.body
    assert says in caught.value.message


def test_a_model_for_another_route_is_named(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == [
        "at_once",
        "awaited",
        "echo",
        "gpt-echo",
        "go_on",
        "uncounted",
        "upper",
    ]
    for model, says in (("go_on", 'has task="completion"'), ("nobody", "there is no model `nobody`")):
        with pytest.raises(openai.NotFoundError, match=says) as caught:
            client.chat.completions.create(model=model, messages=user(TEXT))
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        assert "at_once, awaited, echo, gpt-echo, uncounted" in caught.value.message


def test_a_failure_before_the_first_part_has_its_status_and_a_later_one_is_an_event(
    client: openai.OpenAI, server: Server
) -> None:
    with pytest.raises(openai.InternalServerError) as early:
        client.chat.completions.create(model="echo", messages=user("hurt me"), stream=True)
    assert (early.value.status_code, early.value.code) == (500, "model_failed")
    stream = client.chat.completions.create(model="echo", messages=user("you hurt me"), stream=True)
    chunks = list[ChatCompletionChunk]()
    with pytest.raises(openai.APIError) as late:
        chunks.extend(stream)
    assert late.value.code == "model_failed"
    assert "it hurts" not in str(late.value)
    body = {"model": "echo", "messages": user("you hurt me"), "stream": True}
    text = server.post("/v1/chat/completions", body).body.decode()
    assert "[DONE]" not in text and '"content":"you"' in text
    assert text.endswith("}\n\n") and 'data: {"error":{"message":' in text.split("\n\n")[-2]


def test_raw_responses(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="echo", messages=user("a"), extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().id == "chatcmpl-mine-1"
    with client.chat.completions.with_streaming_response.create(
        model="echo", messages=user("a"), stream=True
    ) as streamed:
        assert list(streamed.iter_lines())[-2:] == ["data: [DONE]", ""]


def test_a_client_that_leaves_ends_its_answer(serve: Serve, tmp_path: Path) -> None:
    server = serve("chatting.py")
    gate = tmp_path / "gate"
    with client_of(server) as client:
        body = {"gate": str(gate)}
        long = " ".join(["word"] * 100_000)
        stream = client.chat.completions.create(
            model="echo", messages=user(long), max_tokens=100_000, stream=True, extra_body=body, n=2
        )
        chunks = [next(stream) for _ in range(2)]
        assert said(chunks, chunks[0].choices[0].index) == "word"
        stream.close()
    gate.touch()
    until(lambda: server.stdout().count("released after") == 2, "both choices are released")
    until(lambda: server.metric("jitney_requests_total", deployment="echo", outcome="cancelled") == 1, "one request")


def test_a_task_that_is_cancelled_ends_its_answer(serve: Serve, tmp_path: Path) -> None:
    server = serve("chatting.py")
    gate = tmp_path / "gate"

    async def read(client: openai.AsyncOpenAI, begun: asyncio.Event) -> None:
        stream = await client.chat.completions.create(
            model="echo", messages=user("a b c"), stream=True, extra_body={"gate": str(gate)}
        )
        async for _ in stream:
            begun.set()

    async def leave() -> None:
        async with async_client_of(server) as client:
            begun = asyncio.Event()
            task = asyncio.create_task(read(client, begun))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(leave())
    until(lambda: server.metric("jitney_requests_total", deployment="echo", outcome="cancelled") == 1, "it is counted")
    gate.touch()
    until(lambda: "released after" in server.stdout(), "its state is released")
    assert "released after 3" not in server.stdout()


def test_each_part_is_sent_when_it_is_made_and_a_lost_worker_is_an_error(serve: Serve, tmp_path: Path) -> None:
    server = serve("chatting.py")
    gate = tmp_path / "gate"
    with client_of(server) as client:
        stream = client.chat.completions.create(
            model="echo", messages=user("a b c"), stream=True, extra_body={"gate": str(gate)}
        )
        assert said([next(stream), next(stream)]) == "a"
        for worker in server.workers():
            os.kill(worker, signal.SIGKILL)
        gate.touch()
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert caught.value.code == "worker_lost"


def test_async_clients_at_once(server: Server) -> None:
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        stream = await client.chat.completions.create(model="echo", messages=user(f"number {number}"), stream=True)
        return said([chunk async for chunk in stream])

    async def all_of_them() -> list[str]:
        async with async_client_of(server) as client:
            return list(await asyncio.gather(*(ask(client, number) for number in range(20))))

    assert asyncio.run(all_of_them()) == [f"number {number}" for number in range(20)]


def test_the_native_route_takes_the_same_item(server: Server) -> None:
    item = {"messages": user("a b"), "max_tokens": 1}
    assert server.post("/echo", item).json() == "a"
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/echo",
        json.dumps(item).encode(),
        {"accept": "text/event-stream", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert '"reason":"length"' in reply.read().decode()
