"""LitServe's streams: its loop for continuous batching, a batch that yields, or one item for each call.

https://lightning.ai/docs/litserve/features/streaming and .../async-concurrency, and `ContinuousBatchingLoop` of
litserve.loops.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import litserve
import models
import parts
from engine import Engine
from litserve.loops import ContinuousBatchingLoop
from litserve.loops.continuous_batching_loop import Output
from litserve.utils import LitAPIStatus


class InSteps(litserve.LitAPI):
    """Items join between two steps."""

    def setup(self, device: str) -> None:
        self.active: dict[str, parts.Writing] = {}

    def decode_request(self, request):  # without a type it is the JSON of the body
        return request

    def add_request(self, uid: str, request: Any) -> None:
        self.active[uid] = parts.begin(request)

    def has_capacity(self) -> bool:
        return len(self.active) < parts.MAX_ITEMS

    def has_active_requests(self) -> bool:
        return bool(self.active)

    def step(self, prev_outputs: Any) -> list[Output]:
        active = dict(self.active)  # a thread adds to it
        made = parts.step(list(active.values()))
        outputs = [Output(uid, part, LitAPIStatus.OK) for uid, part in zip(active, made, strict=True)]
        for uid in (uid for uid, writing in active.items() if not writing.left):
            del self.active[uid]
            outputs.append(Output(uid, "", LitAPIStatus.FINISH_STREAMING))
        return outputs

    def encode_response(self, output: str) -> str:
        return parts.event(output)


class InBatches(litserve.LitAPI):
    """A batch runs until its last item has ended."""

    def setup(self, device: str) -> None: ...

    def decode_request(self, request):
        return request

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, batch: list[Any]) -> Iterator[list[str]]:
        writings = [parts.begin(item) for item in batch]
        while left := [writing for writing in writings if writing.left]:
            made = dict(zip(map(id, left), parts.step(left), strict=True))
            yield [made.get(id(writing), "") for writing in writings]

    def unbatch(self, output: Iterator[list[str]]) -> Iterator[list[str]]:
        yield from output

    def encode_response(self, output: Iterator[list[str]]):  # LitServe makes a schema of a declared type
        for made in output:
            yield [parts.event(part) if part else "" for part in made]


class OneItem(litserve.LitAPI):
    """The default loop: the next item begins when the one before has ended."""

    def setup(self, device: str) -> None: ...

    def decode_request(self, request):
        return request

    def predict(self, item: Any) -> Iterator[str]:
        writing = parts.begin(item)
        while writing.left:
            (part,) = parts.step([writing])
            yield part

    def encode_response(self, output: Iterator[str]):
        for part in output:
            yield parts.event(part)


class OneItemAsync(litserve.LitAPI):
    """The default loop with `enable_async`: a coroutine for each item, and an engine that steps."""

    def setup(self, device: str) -> None:
        self.engine = Engine()

    async def decode_request(self, request):
        return request

    async def predict(self, item: Any) -> AsyncGenerator[str, None]:
        async for part in self.engine.generate(item):
            yield part

    async def encode_response(self, output: AsyncIterator[str]):
        async for part in output:
            yield parts.event(part)


def api() -> litserve.LitAPI:
    settings: dict[str, Any] = {"api_path": "/inference", "stream": True}
    match models.SETTINGS.get("variant"):
        case "batches":
            return InBatches(**settings, max_batch_size=parts.MAX_ITEMS, batch_timeout=0.005)
        case "one" if models.SETTINGS.get("enable_async"):
            return OneItemAsync(**settings, enable_async=True)
        case "one":
            return OneItem(**settings)
        case _:
            return InSteps(**settings, loop=ContinuousBatchingLoop())


if __name__ == "__main__":
    server = litserve.LitServer(
        api(),
        accelerator="cpu",
        workers_per_device=1,
        fast_queue=models.SETTINGS.get("fast_queue", False),
        timeout=60,  # seconds in the queue, as many as the clients wait
    )
    server.run(host="127.0.0.1", port=models.PORT, log_level="warning", generate_client_file=False, access_log=False)
