"""A model that does not use the CPU; how many replicas there are is said on the command line."""

import jitney
import msgspec

from stories.accelerator import Accelerator
from stories.replicas import BATCH_S, SIZE


class Text(msgspec.Struct):
    text: str


@jitney.deployment(name="upper", max_batch_size=SIZE)
class Upper:
    def __init__(self) -> None:
        self.accelerator = Accelerator(BATCH_S, 0)

    def predict(self, texts: list[Text]) -> list[Text]:
        self.accelerator.run(len(texts))
        return [Text(one.text.upper()) for one in texts]
