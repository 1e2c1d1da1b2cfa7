"""Measures options of PyTorch with a U-Net of the shape of Stable Diffusion 1.5: each is switched on alone.

    pip install torch
    python examples/text_to_image/training/large_options.py

It uses a GPU if there is one. Otherwise it computes on one thread, needs 6 GB of memory, and its time is processor
time, because other programs change that least. The options take turns, round after round. All but one compute without
gradients. Memory is what a step needs above the weights, at most.
"""
# pyright: basic, reportMissingImports=false

import argparse
import ctypes
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from large import WORD, WORDS, Network
from network import use_attention

IS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if IS_GPU else "cpu")
BASE, GRADIENTS = "no gradients", "gradients"


class Cost(NamedTuple):
    """What a step took."""

    processor_s: float
    clock_s: float
    peak_mb: float


@contextmanager
def nothing(network: Network) -> Iterator[None]:
    yield


@contextmanager
def sliced(network: Network) -> Iterator[None]:
    use_attention(network, "sliced")
    yield
    use_attention(network, "plain")


@contextmanager
def fused(network: Network) -> Iterator[None]:
    use_attention(network, "fused")
    yield
    use_attention(network, "plain")


@contextmanager
def channels_last(network: Network) -> Iterator[None]:
    network.to(memory_format=torch.channels_last)
    yield
    network.to(memory_format=torch.contiguous_format)


@contextmanager
def autotuned(network: Network) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    yield
    torch.backends.cudnn.benchmark = False


@contextmanager
def all_cores(network: Network) -> Iterator[None]:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    yield
    torch.set_num_threads(1)


@contextmanager
def fused_and_last(network: Network) -> Iterator[None]:
    with fused(network), channels_last(network):
        yield


OPTIONS: dict[str, Callable[[Network], AbstractContextManager[None]]] = {
    BASE: nothing,
    GRADIENTS: nothing,
    "attention slicing": sliced,
    "memory-efficient attention": fused,
    "channels last": channels_last,
    "cuDNN autotune": autotuned,
    "a thread for each core": all_cores,
    "channels last, memory-efficient attention": fused_and_last,
}


def memory_mb(name: str) -> float:
    """Return a line of what the kernel says of this process: VmRSS is the memory it has, VmHWM the most it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def step(network: Network, n: int, side: int, last: bool) -> Cost:
    """Compute a step of n pictures with guidance: two rows for each."""
    layout = torch.channels_last if last else torch.contiguous_format
    latents = torch.randn(2 * n, 4, side, side, device=DEVICE).contiguous(memory_format=layout)
    times, words = torch.full((2 * n,), 500, device=DEVICE), torch.randn(2 * n, WORDS, WORD, device=DEVICE)
    if IS_GPU:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before_mb = torch.cuda.memory_allocated() / 1e6
    else:
        ctypes.CDLL(None).malloc_trim(0)  # give back what earlier steps needed
        Path("/proc/self/clear_refs").write_text("5")  # forget the most that it had
        before_mb = memory_mb("VmRSS")
    clock, processor = time.perf_counter(), time.process_time()
    network(latents, times, words)
    if IS_GPU:
        torch.cuda.synchronize()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    peak_mb = torch.cuda.max_memory_allocated() / 1e6 if IS_GPU else memory_mb("VmHWM")
    return Cost(processor, clock, peak_mb - before_mb)


def show(found: dict[str, list[Cost]]) -> None:
    middle = {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in found.items()}
    base = middle[BASE]
    print("| option | processor time | time | memory, MB |\n| --- | ---: | ---: | ---: |")
    for name, cost in middle.items():
        ratios = f"{cost.processor_s / base.processor_s:.2f} | {cost.clock_s / base.clock_s:.2f}"
        print(f"| {name} | {ratios} | {cost.peak_mb:.0f} |")
    print(f"1 is {base.processor_s:.2f} s of processor time and {base.clock_s:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="after one of warm-up")
    parser.add_argument("--minutes", type=float, default=15, help="no round begins later")
    parser.add_argument("--side", type=int, default=64 if IS_GPU else 32, help="width and height of the latents")
    parser.add_argument("-n", type=int, default=1, help="pictures of a step")
    parser.add_argument("--width", type=int, default=320, help="of the first level; less is a smaller network")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    end = time.monotonic() + chosen.minutes * 60
    network = Network(chosen.width).eval().to(DEVICE)
    size = sum(each.numel() for each in network.parameters()) / 1e6
    on = torch.cuda.get_device_name() if IS_GPU else "one core"
    print(f"torch {torch.__version__}, {on}, {size:.1f} million parameters, float32")
    print(f"{chosen.n} pictures with guidance, latents of {chosen.side} x {chosen.side}", flush=True)
    found: dict[str, list[Cost]] = {name: [] for name in OPTIONS}
    for number in range(chosen.rounds + 1):
        if time.monotonic() > end:
            break
        for name, option in OPTIONS.items():
            with option(network), torch.inference_mode(name != GRADIENTS):
                cost = step(network, chosen.n, chosen.side, name.startswith("channels last"))
            print(f"{number} {name}: {cost}", file=sys.stderr, flush=True)
            if number > 0:
                found[name].append(cost)
    if found[BASE]:
        print(f"{len(found[BASE])} rounds")
        show({name: costs for name, costs in found.items() if costs})


if __name__ == "__main__":
    main()
