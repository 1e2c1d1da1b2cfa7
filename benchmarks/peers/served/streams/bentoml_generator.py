"""BentoML: a generator for each request, as its page on streams has it. Batchable APIs do not stream."""

import asyncio
from collections.abc import AsyncGenerator

import bentoml
import parts as model


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 1024})
class Served:
    @bentoml.api(route="/inference")
    async def inference(self, text: str, parts: int) -> AsyncGenerator[str, None]:
        writing = model.Writing(text, parts)
        while writing.left:
            (part,) = await asyncio.to_thread(model.step, [writing]) if model.SLEEPS else model.step([writing])
            yield model.event(part)
        yield model.END
