"""An asynchronous generator: engines that batch by themselves look like this. Files say when to go on."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import jitney
import msgspec
from witness import is_gate_shut, record


class Text(msgspec.Struct):
    """A text that is said a letter at a time. `!` is a letter that cannot be said."""

    text: str
    gate: str = ""
    """From its second letter on, the answer waits for this file."""


@jitney.deployment(batched=False, max_batch_size=4, examples=[Text("ab")], context_headers=["x-tenant"])
class Talk:
    """Says texts, each a letter at a time."""

    async def predict(self, item: Text) -> AsyncIterator[jitney.Step[str]]:
        record("begin", [item.text])
        try:
            for place, letter in enumerate(item.text):
                while item.gate and place == 1 and not Path(item.gate).exists():
                    await asyncio.sleep(0.002)
                if letter == "!":
                    raise ValueError("no shouting")
                yield letter
            yield jitney.End(reason="length", usage=jitney.Usage(1, len(item.text)))
        except (asyncio.CancelledError, GeneratorExit):
            # GeneratorExit follows the end of each answer too.
            record("left", [item.text])
            raise
        finally:
            record("end", [item.text])


@jitney.deployment(batched=False, max_batch_size=8, context_headers=["x-tenant"])
async def tenants(text: str) -> AsyncIterator[jitney.Step[str]]:
    """Say whose request this is, at each part."""
    for _ in text:
        [request] = jitney.context().requests
        yield f"{request.headers['x-tenant']} "
        await asyncio.sleep(0.001)
        print(f"said to {request.headers['x-tenant']}")


@jitney.deployment(batched=False, max_batch_size=8, task="chat")
class Both:
    """A chat in parts, and another method of the same model with whole answers. Both share the event loop."""

    async def predict(self, chat: jitney.Chat) -> AsyncIterator[jitney.Step[str]]:
        for word in chat.plain()[-1]["content"].split():
            await asyncio.sleep(0)
            yield f"{word} "
        yield jitney.End(reason="length", usage=jitney.Usage(1, 2))

    @jitney.method
    async def kill(self, text: str) -> int:
        """Wait while the gate is shut; `kill` ends the process."""
        record(jitney.context().method, [text])
        if text == "kill":
            os._exit(3)
        while is_gate_shut():
            await asyncio.sleep(0.002)
        return len(text)
