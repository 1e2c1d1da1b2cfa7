"""A model whose exceptions cannot be said; its items are grouped by a field that may be null or left out."""

import os
from dataclasses import dataclass

import jitney


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass
class Item:
    text: str
    seed: int | None = None


@jitney.deployment(group_by=("seed",))
class OddErrors:
    def predict(self, items: list[Item]) -> list[dict[str, int | None] | Exception]:
        for item in items:
            if item.text == "surrogate":
                raise ValueError("file \udc80")
            if item.text == "mute":
                raise Mute
            if item.text == "busy":
                raise jitney.Overloaded("the database is full", retry_after_s=6.5)
            if item.text == "refused":
                raise jitney.InvalidInput("file \udc80" * 10_000, field="$.\udc80")
        later = jitney.Overloaded("not this one", retry_after_s=5)
        return [later if item.text == "later" else {"pid": os.getpid(), "seed": item.seed} for item in items]
