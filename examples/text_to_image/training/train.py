"""Trains the model of this example from nothing, on one core: pictures are drawn while it learns.

    pip install torch onnx
    python examples/text_to_image/training/train.py --minutes 40

It learns pictures of three sizes, each drawn at its size. It writes `model.onnx` next to the example.
"""
# pyright: basic, reportMissingImports=false

import argparse
import copy
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from export import export
from network import Network
from pictures import picture
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))
from schedule import SIZES, TIMES, signal
from vocabulary import MOST_WORDS, WORDS, numbers

BATCH = 32
NO_PROMPT = 0.1
"""How many pictures are learned without their prompt: guidance compares with those."""
RATE = 1.5e-3
KEEP = 0.995


def batch(rng: np.random.Generator, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw pictures of one size, and their prompts as numbers. The first half of the time is for small pictures."""
    size = SIZES[0 if share < 0.5 else rng.choice(len(SIZES), p=[0.4, 0.3, 0.3])]
    pairs = [picture(size, rng) for _ in range(BATCH)]
    prompts = ["" if rng.random() < NO_PROMPT else words for _, words in pairs]
    return torch.from_numpy(np.stack([pixels for pixels, _ in pairs])), torch.from_numpy(numbers(prompts))


def loss_of(network: nn.Module, pixels: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Add noise of a random time to each picture; the network says which part is noise and which is picture."""
    times = torch.randint(0, TIMES, (len(pixels),))
    kept = torch.from_numpy(signal(times.numpy())).view(-1, 1, 1, 1)
    noise = torch.randn_like(pixels)
    mixed = kept.sqrt() * pixels + (1 - kept).sqrt() * noise
    expected = kept.sqrt() * noise - (1 - kept).sqrt() * pixels
    with torch.autocast("cpu", torch.bfloat16, enabled=LOW_PRECISION):
        answer = network(mixed.contiguous(memory_format=torch.channels_last), times, words)
    return F.mse_loss(answer.float(), expected)


def train(minutes: float, wall_minutes: float, checkpoint: Path) -> nn.Module:
    """Learn for so many minutes of processor time, or of time on the clock. Returns the mean of the last networks."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = Network(len(WORDS), MOST_WORDS).to(memory_format=torch.channels_last)
    mean = copy.deepcopy(network)
    print(f"{sum(p.numel() for p in network.parameters()) / 1e6:.2f} million parameters", flush=True)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, betas=(0.9, 0.99), weight_decay=1e-4)
    began, wall_began, losses, saved = time.process_time(), time.time(), [], 0.0
    while True:
        spent = time.process_time() - began
        share = max(spent / minutes, (time.time() - wall_began) / wall_minutes) / 60
        if share >= 1:
            break
        rate = RATE * min(1, (len(losses) + 1) / 100) * (0.5 * (1 + math.cos(math.pi * share)) + 0.01)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(network, *batch(rng, share))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        keep = min(KEEP, (1 + len(losses)) / (10 + len(losses)))
        with torch.no_grad():
            for old, new in zip(mean.parameters(), network.parameters(), strict=True):
                old.lerp_(new, 1 - keep)
        if len(losses) % 50 == 0:
            recent = float(np.mean(losses[-50:]))
            print(f"step {len(losses)}, {spent:.0f} s of processor time, loss {recent:.4f}", flush=True)
        if spent - saved > 120:
            saved = spent
            torch.save(mean.state_dict(), checkpoint)
    print(f"{len(losses)} steps of {BATCH} pictures in {time.process_time() - began:.0f} s of processor time")
    torch.save(mean.state_dict(), checkpoint)
    return mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40, help="processor time to train for")
    parser.add_argument("--wall-minutes", type=float, default=math.inf, help="time on the clock to train for")
    parser.add_argument("--checkpoint", type=Path, default=Path("text-to-image.pt"))
    parser.add_argument("--only-export", action="store_true", help="write the model from the checkpoint")
    parser.add_argument("--bf16", action="store_true", help="compute in 16 bits: faster on processors with AMX")
    parser.add_argument("--out", type=Path, default=HERE / "model.onnx")
    chosen = parser.parse_args()
    LOW_PRECISION = chosen.bf16
    torch.set_num_threads(1)
    if chosen.only_export:
        trained: nn.Module = Network(len(WORDS), MOST_WORDS)
        trained.load_state_dict(torch.load(chosen.checkpoint))
    else:
        trained = train(chosen.minutes, chosen.wall_minutes, chosen.checkpoint)
    export(trained.eval(), chosen.out)
