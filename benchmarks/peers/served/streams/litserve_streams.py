"""LitServe's streams: its loop for continuous batching, or a batch that yields.

https://lightning.ai/docs/litserve/features/streaming, and `ContinuousBatchingLoop` of litserve.loops.
"""

from collections.abc import Iterator
from typing import Any

import litserve
import models
import parts
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


if __name__ == "__main__":
    settings = {"api_path": "/inference", "stream": True}
    if models.SETTINGS.get("variant") == "batches":
        api = InBatches(**settings, max_batch_size=parts.MAX_ITEMS, batch_timeout=0.005)
    else:
        api = InSteps(**settings, loop=ContinuousBatchingLoop())
    server = litserve.LitServer(
        api, accelerator="cpu", workers_per_device=1, fast_queue=models.SETTINGS.get("fast_queue", False)
    )
    server.run(host="127.0.0.1", port=models.PORT, log_level="warning", generate_client_file=False, access_log=False)
