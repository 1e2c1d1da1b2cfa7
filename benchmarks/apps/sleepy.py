"""A model of a + b·n seconds that leaves the CPU alone, as an accelerator would."""

import os
import time

import jitney
import msgspec

BASE_S = float(os.environ.get("BENCH_BASE_S", "0.005"))
ITEM_S = float(os.environ.get("BENCH_ITEM_S", "0.0001"))


@jitney.deployment(max_batch_size=64)
def sleepy(items: list[dict[str, str]]) -> list[dict[str, str]]:
    time.sleep(BASE_S + ITEM_S * len(items))
    return items


class Text(msgspec.Struct):
    """Texts of different lengths are different groups."""

    text: str


@jitney.deployment(max_batch_size=64, group_by=(jitney.bucket(jitney.length("text"), edges=(18, 19, 20)),))
def grouped(items: list[Text]) -> list[Text]:
    time.sleep(BASE_S + ITEM_S * len(items))
    return items
