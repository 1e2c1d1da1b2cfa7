"""A U-Net of the shape of Stable Diffusion 1.5 with random weights: 860 million numbers."""
# pyright: basic, reportMissingImports=false

import math

import torch
from network import Attention
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, WORD, HEADS, GROUPS = 77, 768, 8, 32
"""What the text encoder makes of a prompt: 77 vectors of 768 numbers."""


class Residual(nn.Module):
    """Two convolutions that know the time."""

    def __init__(self, before: int, after: int, condition: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(GROUPS, before), nn.GroupNorm(GROUPS, after)])
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(condition, after)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor, words: Tensor) -> Tensor:
        y = self.first(F.silu(self.norms[0](x))) + self.time(F.silu(condition))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Transformer(nn.Module):
    """Places of the picture look at each other, then at the words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.into, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.places, self.words = Attention(width, width, HEADS), Attention(width, WORD, HEADS)
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, condition: Tensor, words: Tensor) -> Tensor:
        n, width, high, wide = x.shape
        tokens = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        read = self.norms[0](tokens)
        tokens = tokens + self.places(read, read)
        tokens = tokens + self.words(self.norms[1](tokens), words)
        value, gate = self.wide(self.norms[2](tokens)).chunk(2, 2)
        tokens = tokens + self.narrow(value * F.gelu(gate))
        return x + self.out(tokens.transpose(1, 2).reshape(n, width, high, wide))


class Halve(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, stride=2, padding=1)

    def forward(self, x: Tensor, condition: Tensor, words: Tensor) -> Tensor:
        return self.convolution(x)


class Double(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, condition: Tensor, words: Tensor) -> Tensor:
        return self.convolution(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Network(nn.Module):
    """Takes noisy latents, their times and the vectors of prompts. `width` is that of the first of four levels."""

    def __init__(self, width: int = 320) -> None:
        super().__init__()
        widths, condition = (width, 2 * width, 4 * width, 4 * width), 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.into = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        kept, before = [width], width
        for level, after in enumerate(widths):
            for _ in range(2):
                self.down.append(blocks(before, after, condition, level < 3))
                kept.append(before := after)
            if level < 3:
                self.down.append(nn.ModuleList([Halve(after)]))
                kept.append(after)
        self.middle = nn.ModuleList([*blocks(before, before, condition, True), Residual(before, before, condition)])
        for level, after in reversed(list(enumerate(widths))):
            for number in range(3):
                layers = blocks(before + kept.pop(), after, condition, level < 3)
                self.up.append(layers)
                before = after
                if level > 0 and number == 2:
                    layers.append(Double(after))
        self.norm = nn.GroupNorm(GROUPS, width)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, latents: Tensor, times: Tensor, words: Tensor) -> Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, device=latents.device) / half)
        angles = times[:, None].float() * rates
        condition = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        x = self.into(latents)
        kept = [x]
        for layers in self.down:
            x = through(layers, x, condition, words)
            kept.append(x)
        x = through(self.middle, x, condition, words)
        for layers in self.up:
            x = through(layers, torch.cat([x, kept.pop()], 1), condition, words)
        return self.out(F.silu(self.norm(x)))


def blocks(before: int, after: int, condition: int, looks: bool) -> nn.ModuleList:
    return nn.ModuleList([Residual(before, after, condition), *([Transformer(after)] if looks else [])])


def through(layers: nn.ModuleList, x: Tensor, condition: Tensor, words: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x, condition, words)
    return x
