"""The same accelerator behind jitney; nothing is set but the size that theirs may have too."""

import jitney
import msgspec

from stories.accelerator import Accelerator
from stories.steady import BASE_S, ITEM_S, SIZE


class Text(msgspec.Struct):
    text: str


@jitney.deployment(name="upper", max_batch_size=SIZE)
class Upper:
    def __init__(self) -> None:
        self.accelerator = Accelerator(BASE_S, ITEM_S)

    def predict(self, texts: list[Text]) -> list[Text]:
        self.accelerator.run(len(texts))
        return [Text(one.text.upper()) for one in texts]
