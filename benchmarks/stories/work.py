"""The models that run while I/O is measured: one that sleeps, one that computes in Python, one real model."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stories.accelerator import Accelerator

SECONDS = 0.042
"""Theirs: I/O of 5 ms took 47 ms behind the model."""
Predict = Callable[[list[str]], list[Any]]


def sleeping() -> Predict:
    """An accelerator; a batch costs little more than one item."""
    accelerator = Accelerator(SECONDS * 0.95, SECONDS * 0.05)

    def predict(texts: list[str]) -> list[str]:
        accelerator.run(len(texts))
        return [text.upper() for text in texts]

    return predict


def computing() -> Predict:
    """Computes in Python for as much of its thread's own time, as a tokenizer or a tree does: the lock is held."""

    def predict(texts: list[str]) -> list[str]:
        end = time.thread_time() + SECONDS * (0.95 + 0.05 * len(texts))
        while time.thread_time() < end:
            pass
        return [text.upper() for text in texts]

    return predict


def minilm() -> Predict:
    """all-MiniLM-L6-v2, 8-bit weights, on one thread of onnxruntime wherever it runs."""
    import numpy as np  # noqa: PLC0415  heavy, and only of this model
    import onnxruntime  # noqa: PLC0415
    import tokenizers  # noqa: PLC0415
    from jitney.models import minilm  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(minilm.weights()), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(minilm.__file__).with_name("tokenizer.json")))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def predict(texts: list[str]) -> list[Any]:
        encoded = tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (tokens,) = session.run(["last_hidden_state"], feeds)
        vectors = (tokens * mask[..., None]).sum(axis=1)
        return list((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))

    return predict


MODELS: dict[str, Callable[[], Predict]] = {"sleeping": sleeping, "computing": computing, "minilm": minilm}


def cores() -> list[int]:
    """The cores that `STORY_CORES` names, else all that this process may use."""
    named = os.environ.get("STORY_CORES")
    return [int(core) for core in named.split(",")] if named else sorted(os.sched_getaffinity(0))


def keep_to_model_core() -> None:
    """Let the model have the last core for itself, where there is more than one."""
    if len(cores()) > 1:
        os.sched_setaffinity(0, {cores()[-1]})


def leave_model_core() -> None:
    """Keep this process, and what it starts from now on, off the core of the model."""
    if len(cores()) > 1:
        os.sched_setaffinity(0, set(cores()[:-1]))
