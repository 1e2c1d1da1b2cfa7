"""Models for the routes for texts: each repeats the last message, a word a part."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import jitney
import msgspec


class Talk(jitney.Chat):
    """A chat with a field of the model's own."""

    gate: str = ""
    """From its second word on, the answer waits for this file.

    At its end it writes its number of words to GATE.released.
    """
    tools: tuple[str, ...] = ()


class Prompt(msgspec.Struct):
    """A text to go on with."""

    prompt: str | list[int]
    max_tokens: int = 16
    seed: int | None = None


def words(chat: jitney.Chat) -> list[str]:
    """Return the pieces of the answer: who speaks first is a matter of the seed."""
    said = chat.plain()[-1]["content"]
    answer = said if chat.seed is None else f"{chat.seed}: {said}"
    for stop in chat.stops:
        answer = answer.split(stop)[0]
    pieces = [f" {word}" for word in answer.split()]
    return [piece.strip() if place == 0 else piece for place, piece in enumerate(pieces)]


def read(chat: jitney.Chat) -> int:
    """Return how many words the model reads."""
    return sum(len(message["content"].split()) for message in chat.plain())


@dataclass
class Writing:
    """An answer between two steps."""

    chat: Talk
    words: list[str]
    at: int = 0


@jitney.deployment(task="chat", max_batch_size=16, openai_names=("gpt-echo",))
class Echo:
    """Works in steps: a word a step, each answer of any age."""

    def admit(self, chats: list[Talk]) -> list[Writing | Exception]:
        return [self.begin(chat) for chat in chats]

    def begin(self, chat: Talk) -> Writing | Exception:
        pieces = words(chat)
        if "forbidden" in pieces:
            return jitney.InvalidInput("forbidden cannot be said; say something else")
        return Writing(chat, pieces)

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        return [self.write(writing) for writing in writings]

    def write(self, writing: Writing) -> jitney.Step[str]:
        while writing.chat.gate and writing.at == 1 and not Path(writing.chat.gate).exists():
            Event().wait(0.01)
        limit = min(len(writing.words), writing.chat.max_tokens)
        if writing.at < limit:
            writing.at += 1
            piece = writing.words[writing.at - 1]
            return ValueError("it hurts") if piece.strip() == "hurt" else piece
        reason = "stop" if limit == len(writing.words) else "length"
        return jitney.End(reason=reason, usage=jitney.Usage(read(writing.chat), writing.at))

    def release(self, writings: list[Writing]) -> None:
        for writing in writings:
            print(f"released after {writing.at}", flush=True)
            if writing.chat.gate:
                Path(f"{writing.chat.gate}.released").write_text(str(writing.at))


@jitney.deployment(task="chat", batched=False)
def uncounted(chat: jitney.Chat) -> Iterator[jitney.Step[str]]:
    """Is a generator and counts no tokens."""
    yield from words(chat)
    yield jitney.End(reason="eos")


@jitney.deployment(task="chat", batched=False)
async def awaited(chat: jitney.Chat) -> AsyncIterator[jitney.Step[str]]:
    """Is an asynchronous generator."""
    for word in words(chat):
        await asyncio.sleep(0)
        yield word


@jitney.deployment(task="chat")
def at_once(chats: list[jitney.Chat]) -> list[str]:
    """Answers whole."""
    return ["".join(words(chat)) for chat in chats]


@jitney.deployment(task="completion")
def go_on(prompts: list[Prompt]) -> Iterator[list[jitney.Step[str]]]:
    """Says the length of a prompt, then counts."""
    first = [len(item.prompt) for item in prompts]
    for at in range(max(item.max_tokens for item in prompts)):
        yield [
            f" {length + at + (item.seed or 0)}" if at < item.max_tokens else None
            for item, length in zip(prompts, first, strict=True)
        ]
    yield [
        jitney.End(reason="length", usage=jitney.Usage(length, item.max_tokens))
        for item, length in zip(prompts, first, strict=True)
    ]


@jitney.deployment(task="completion")
def upper(texts: list[str]) -> list[str]:
    """Takes plain text."""
    return [text.upper() for text in texts]
