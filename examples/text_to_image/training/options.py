"""Measures options of PyTorch with the network of this example: each is switched on alone.

    pip install torch
    python examples/text_to_image/training/options.py

The options take turns, round after round, so that another program on the machine slows all of them. It prints the
median time of a step with the option, divided by the median time of a step without any. A step has one thread, and its
time is processor time.
"""
# pyright: basic, reportMissingImports=false

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from network import Network, use_attention

sys.path.insert(0, str(Path(__file__).parents[1]))
from vocabulary import MOST_WORDS, WORDS, numbers

Measured = Callable[[int, int], float]


def fresh(attention: str = "plain", layout: torch.memory_format = torch.contiguous_format) -> Network:
    """Return the network with random weights: its time does not depend on them."""
    torch.manual_seed(0)
    network = Network(len(WORDS), MOST_WORDS).eval().to(memory_format=layout)
    use_attention(network, attention)  # type: ignore[arg-type]
    return network


def step(network: Network, n: int, side: int, layout: torch.memory_format = torch.contiguous_format) -> float:
    """Return the seconds of a step of n pictures with guidance."""
    pixels = torch.randn(2 * n, 3, side, side).contiguous(memory_format=layout)
    times, words = torch.full((2 * n,), 500), torch.from_numpy(numbers(["a red heart on a white background"] * 2 * n))
    began = time.process_time()
    network(pixels, times, words)
    return time.process_time() - began


@contextmanager
def autotuning() -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = False


def without_gradients(n: int, side: int) -> float:
    with torch.inference_mode():
        return step(PLAIN, n, side)


def autotuned(n: int, side: int) -> float:
    with autotuning():
        return step(PLAIN, n, side)


def all_that_help(n: int, side: int) -> float:
    with torch.inference_mode():
        return step(LAST_AND_FUSED, n, side, torch.channels_last)


PLAIN, SLICED, FUSED = fresh(), fresh("sliced"), fresh("fused")
LAST = fresh(layout=torch.channels_last)
LAST_AND_FUSED = fresh("fused", torch.channels_last)
OPTIONS: dict[str, Measured] = {
    "none": lambda n, side: step(PLAIN, n, side),
    "attention slicing": lambda n, side: step(SLICED, n, side),
    "memory-efficient attention": lambda n, side: step(FUSED, n, side),
    "channels last": lambda n, side: step(LAST, n, side, torch.channels_last),
    "cuDNN autotune": autotuned,
    "no gradients": without_gradients,
    "channels last, memory-efficient attention, no gradients": all_that_help,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--side", type=int, default=48, help="width and height of the pictures")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    loads = (1, 8)
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in OPTIONS for n in loads}
    for _ in range(chosen.rounds + 2):
        for (name, n), found in times.items():
            found.append(OPTIONS[name](n, chosen.side))
    medians = {key: statistics.median(found[2:]) for key, found in times.items()}  # the first two are warm-up
    print(f"torch {torch.__version__}, one core, {chosen.side} x {chosen.side} pixels, {chosen.rounds} rounds")
    print("| option | " + " | ".join(f"n = {n}" for n in loads) + " |\n| --- | --- | --- |")
    for name in OPTIONS:
        cells = [f"{medians[name, n] / medians['none', n]:.2f} ({medians[name, n] * 1e3:.1f} ms)" for n in loads]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
