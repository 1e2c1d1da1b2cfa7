"""PyTriton with Triton's dynamic batcher.

As https://triton-inference-server.github.io/pytriton/latest/reference/model_config has it.
Texts come through Triton's generate extension (plain JSON), bytes as a binary tensor: what it is best at.
"""

from typing import Any

import models
import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

model = models.load()


def texts(requests: list[Any]) -> list[dict[str, Any]]:
    """One call per batch; each request has its own rows."""
    items = [
        {name: tensor[row, 0].decode() for name, tensor in request.data.items()}
        for request in requests
        for row in range(next(iter(request.data.values())).shape[0])
    ]
    # The array unchanged: Triton takes arrays, and its documentation converts nothing here.
    embedding = isinstance(model, models.MiniLM)
    answers = model.embed([item["text"] for item in items]) if embedding else model(items)
    given: list[dict[str, Any]] = []
    for request in requests:
        count = next(iter(request.data.values())).shape[0]
        mine, answers = answers[:count], answers[count:]
        given.append(
            {"vector": mine}
            if embedding
            else {name: np.array([[item[name].encode()] for item in mine], np.object_) for name in mine[0]}
        )
    return given


def tensors(requests: list[Any]) -> list[dict[str, Any]]:
    answers = model([request.data["body"] for request in requests])
    return [{"body": answer} for answer in answers]


if __name__ == "__main__":
    names = ["text", "group"] if models.MODEL == "grouped" else ["text"]
    strings = [Tensor(name=name, dtype=bytes, shape=(1,)) for name in names]
    body = [Tensor(name="body", dtype=np.uint8, shape=(-1,))]
    vector = [Tensor(name="vector", dtype=np.float32, shape=(384,))]
    is_bytes = models.MODEL == "bytes"
    delay_us = models.SETTINGS.get("max_queue_delay_microseconds", 0)
    config = TritonConfig(http_address="127.0.0.1", http_port=models.PORT, allow_grpc=False, allow_metrics=False)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="served",
            infer_func=tensors if is_bytes else texts,
            inputs=body if is_bytes else strings,
            outputs=body if is_bytes else vector if models.MODEL == "minilm" else strings,
            config=ModelConfig(
                max_batch_size=models.MAX_BATCH_SIZE, batcher=DynamicBatcher(max_queue_delay_microseconds=delay_us)
            ),
        )
        triton.serve()
