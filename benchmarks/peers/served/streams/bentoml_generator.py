"""BentoML: a generator for each request, as its page on streams has it. Its batchable APIs do not stream.

Where a step takes time, the generators share an engine, as in its page on vLLM.
"""

from collections.abc import AsyncGenerator
from typing import Any

import bentoml
import parts as model
from engine import Engine


async def alone(item: dict[str, Any]) -> AsyncGenerator[str, None]:
    writing = model.begin(item)
    while writing.left:
        (part,) = model.step([writing])
        yield part


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 1024})
class Served:
    def __init__(self) -> None:
        self.generate = Engine().generate if model.SLEEPS else alone

    @bentoml.api(route="/inference")
    async def inference(self, text: str, parts: int) -> AsyncGenerator[str, None]:
        async for part in self.generate({"text": text, "parts": parts}):
            yield model.event(part)
        yield model.END
