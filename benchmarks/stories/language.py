"""Language models of the stories: one whose cost sleeps, and one in the shape of OPT-125m that computes.

Run with a folder, this file makes the second: `python -m stories.language FOLDER`.
"""

import os
import sys
from pathlib import Path
from typing import Any, Protocol

from stories.accelerator import Accelerator

TOKENS = 10
# 40 one at a time a second and 404 in batches of 40, as their author measured, are 23 ms and 1.8 ms per prompt.
BASE_S, ITEM_S = 0.023, 0.0018

# facebook/opt-125m: layers, heads, width, inner width, words, positions.
LAYERS, HEADS, WIDTH, INNER, WORDS, POSITIONS = 12, 12, 768, 3072, 50272, 2048


class Language(Protocol):
    """Continues each prompt by `TOKENS` tokens."""

    def generate(self, prompts: list[str]) -> list[list[int]]: ...


class Sleeping:
    """Takes as long as theirs; its tokens follow from the prompt, so that a client can check them."""

    def __init__(self) -> None:
        self.accelerator = Accelerator(BASE_S, ITEM_S)

    def generate(self, prompts: list[str]) -> list[list[int]]:
        self.accelerator.run(len(prompts))
        return [tokens_of(prompt) for prompt in prompts]


def tokens_of(prompt: str) -> list[int]:
    return [(sum(prompt.encode()) * (place + 1) + len(prompt)) % WORDS for place in range(TOKENS)]


class Computing:
    """Random weights in the shape of OPT-125m, as CTranslate2 runs them, on one thread."""

    def __init__(self, folder: str) -> None:
        import ctranslate2  # noqa: PLC0415  only where this model is asked for

        self._generator: Any = ctranslate2.Generator(folder, device="cpu", inter_threads=1, intra_threads=1)

    def generate(self, prompts: list[str]) -> list[list[int]]:
        results = self._generator.generate_batch(
            [["<s>", *(f"w{byte}" for byte in prompt.encode())] for prompt in prompts],
            max_batch_size=len(prompts),
            min_length=TOKENS,
            max_length=TOKENS,
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        return [list(result.sequences_ids[0]) for result in results]


def load() -> Language:
    """The model that the environment names."""
    folder = os.environ.get("STORY_OPT_FOLDER")
    return Computing(folder) if folder else Sleeping()


def make(folder: Path) -> None:
    """Write random weights in the shape of OPT-125m, in the format of CTranslate2 and as its 8-bit integers."""
    import numpy as np  # noqa: PLC0415
    from ctranslate2.specs import TransformerDecoderModelSpec  # noqa: PLC0415

    generator = np.random.default_rng(125)

    def weights(*shape: int) -> Any:
        return (generator.standard_normal(shape, np.float32) * 0.02).astype(np.float32)

    def normal(spec: Any) -> None:
        spec.gamma, spec.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def linear(spec: Any, outputs: int, inputs: int) -> None:
        spec.weight, spec.bias = weights(outputs, inputs), np.zeros(outputs, np.float32)

    spec: Any = TransformerDecoderModelSpec.from_config(LAYERS, HEADS, pre_norm=True)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights(WORDS, WIDTH)
    decoder.position_encodings.encodings = weights(POSITIONS, WIDTH)
    decoder.projection.weight = decoder.embeddings.weight
    normal(decoder.layer_norm)
    for layer in decoder.layer:
        normal(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        normal(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, INNER, WIDTH)
        linear(layer.ffn.linear_1, WIDTH, INNER)
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    spec.register_vocabulary([*marks, *(f"w{number}" for number in range(WORDS - len(marks)))])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
