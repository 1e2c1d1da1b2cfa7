"""Models that call each other: three levels, a diamond, streams, and every way to fail."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator

import jitney
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=16)
class Base:
    """The last one: what its items ask of it happens here."""

    def predict(self, texts: list[str]) -> list[str]:
        record("base", texts)
        wait_at_gate()
        for text in texts:
            if text.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if text.startswith("raise"):
                raise RuntimeError("the base is broken")
            if text.startswith("bad"):
                raise jitney.InvalidInput("not for the base")
            if text.startswith("busy"):
                raise jitney.Overloaded("the base is busy", retry_after_s=7)
            if text.startswith("sleep"):
                time.sleep(0.002)
        return [f"<{text}>" for text in texts]


@jitney.deployment(max_batch_size=16, context_headers=["x-tenant"])
class Told:
    """Answers with what it knows of the request behind each item."""

    def predict(self, texts: list[str]) -> list[dict[str, str]]:
        requests = jitney.context().requests
        return [{"id": one.id, "trace": one.trace} for one, _ in zip(requests, texts, strict=True)]


@jitney.deployment(batched=False, max_batch_size=64)
class Middle:
    base = jitney.uses(Base)

    async def predict(self, text: str) -> str:
        record("middle", [text])
        return f"({await self.base(text)})"


@jitney.deployment(batched=False, max_batch_size=64, examples=["example"])
class Top:
    """Three levels, and a diamond: it reaches the base by two ways."""

    middle = jitney.uses("middle")
    base = jitney.uses(Base)

    async def predict(self, text: str) -> str:
        record("top", [text])
        if text.startswith("mine"):
            raise jitney.InvalidInput("not for the top")
        long, short = await asyncio.gather(self.middle(text), self.base(text))
        return f"{long} {short}"


@jitney.deployment(max_batch_size=16, examples=["example"])
class Blocking:
    """A batch of its items is a batch of the base."""

    base = jitney.uses_sync(Base)

    def predict(self, texts: list[str]) -> list[str]:
        return [f"[{answer}]" for answer in self.base.many(texts)]


@jitney.deployment(batched=False, max_batch_size=64)
class Asking:
    """Says what a call of another model ended with."""

    base = jitney.uses(Base)
    told = jitney.uses(Told)

    async def predict(self, text: str) -> str:
        if text == "who":
            found = await self.told(text)
            return f"{found['id']} {found['trace']}"
        if text.startswith("many"):
            return " ".join(await self.base.many([text] * int(text.removeprefix("many "))))
        try:
            return await self.base(text)
        except jitney.RequestError as error:
            return f"{type(error).__name__} {error.http_status}"


@jitney.deployment(batched=False)
class Writer:
    def predict(self, text: str) -> Iterator[str]:
        yield from text


@jitney.deployment(batched=False, max_batch_size=16)
class Passing:
    """Passes on what another model yields."""

    writer = jitney.uses(Writer)

    async def predict(self, text: str) -> AsyncIterator[str]:
        async with self.writer.stream(text) as parts:
            async for part in parts:
                yield part.upper()
