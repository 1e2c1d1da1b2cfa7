"""jitney, with its defaults: a model that works in steps."""

import jitney
import msgspec
import parts


class Item(msgspec.Struct):
    text: str
    parts: int


@jitney.deployment(name="streamed", max_batch_size=parts.MAX_ITEMS)
class Streamed:
    def admit(self, items: list[Item]) -> list[parts.Writing]:
        return [parts.Writing(item.text, item.parts) for item in items]

    def step(self, writings: list[parts.Writing]) -> list[jitney.Step[str]]:
        made = parts.step(writings)
        return [part if writing.left else jitney.End(part) for writing, part in zip(writings, made, strict=True)]
