"""jitney, with its defaults."""

import jitney
import models
import msgspec
import numpy as np


@jitney.deployment(max_batch_size=64)
def noop(items: list[dict[str, str]]) -> list[dict[str, str]]:
    return items


@jitney.deployment(max_batch_size=64)
def sleepy(items: list[dict[str, str]]) -> list[dict[str, str]]:
    return models.sleepy(items)


class Item(msgspec.Struct):
    text: str
    group: str


@jitney.deployment(max_batch_size=64, group_by=("group",))
def grouped(items: list[Item]) -> list[Item]:
    # A batch has one group here; the model that all servers have in common looks for itself.
    models.grouped([{"group": item.group} for item in items])
    return items


@jitney.deployment(max_batch_size=64)
def raw(items: list[bytes]) -> list[bytes]:
    return items


class Sentence(msgspec.Struct):
    text: str


@jitney.deployment(max_batch_size=32, cost=jitney.length("text"))
class Minilm:
    def __init__(self) -> None:
        self.model = models.MiniLM()

    def predict(self, items: list[Sentence]) -> np.ndarray:
        return self.model.embed([item.text for item in items])
