"""PyTriton's streams: a decoupled model, and Triton's `generate_stream`.

Either one request at a time with an engine that steps, as its example with vLLM has it, or batches that yield.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import models
import numpy as np
import parts
from engine import Engine
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

engine = Engine()


def item_of(request: Any) -> dict[str, Any]:
    return {"text": request.data["text"].item().decode(), "parts": request.data["parts"].item()}


async def in_steps(requests: list[Any]) -> AsyncGenerator[list[dict[str, Any]], None]:
    (request,) = requests  # without batching
    async for part in engine.generate(item_of(request)):
        yield [{"text": np.array([part.encode()], np.object_)}]


def in_batches(requests: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """Each response is for all requests of the batch. An item that has ended gets events without a text."""
    writings = [parts.begin(item_of(request)) for request in requests]
    while left := [writing for writing in writings if writing.left]:
        made = dict(zip(map(id, left), parts.step(left), strict=True))
        yield [
            {"text": np.array([[made[id(writing)].encode()]], np.object_)} if id(writing) in made else {}
            for writing in writings
        ]


if __name__ == "__main__":
    are_batches = models.SETTINGS.get("variant") == "batches"
    batcher = DynamicBatcher(max_queue_delay_microseconds=models.SETTINGS.get("max_queue_delay_microseconds", 0))
    config = TritonConfig(http_address="127.0.0.1", http_port=models.PORT, allow_grpc=False, allow_metrics=False)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="served",
            infer_func=in_batches if are_batches else in_steps,
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,)), Tensor(name="parts", dtype=np.int32, shape=(1,))],
            outputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            config=ModelConfig(decoupled=True, batching=are_batches, max_batch_size=parts.MAX_ITEMS, batcher=batcher),
        )
        triton.serve()
