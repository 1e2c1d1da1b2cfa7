"""Vectors of texts: one model that costs nothing, and one of a + b·n seconds that leaves the CPU alone."""

import os
import time

import jitney
import numpy as np

BASE_S = float(os.environ.get("BENCH_BASE_S", "0.005"))
ITEM_S = float(os.environ.get("BENCH_ITEM_S", "0.0001"))
VECTORS = np.random.default_rng(0).standard_normal((64, 384), np.float32)


def embedded(texts: list[str]) -> jitney.Embeddings:
    return jitney.Embeddings(VECTORS[: len(texts)], np.full(len(texts), 6))


@jitney.deployment(task="embedding", max_batch_size=64)
def vectors(texts: list[str]) -> jitney.Embeddings:
    return embedded(texts)


@jitney.deployment(task="embedding", max_batch_size=64)
def slow_vectors(texts: list[str]) -> jitney.Embeddings:
    time.sleep(BASE_S + ITEM_S * len(texts))
    return embedded(texts)


@jitney.deployment(max_batch_size=64)
def echo(items: list[dict[str, str]]) -> list[dict[str, str]]:
    return items
