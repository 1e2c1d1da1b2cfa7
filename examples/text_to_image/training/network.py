"""The network: a small U-Net that reads words. It predicts what is noise in a picture and what is not."""
# pyright: basic, reportMissingImports=false

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

AttentionKind = Literal["plain", "sliced", "fused"]
WIDE, WIDER, WORD = 48, 96, 64
HEADS = 4


class Attention(nn.Module):
    """Each token looks at tokens of the context. The three kinds compute the same."""

    def __init__(self, width: int, context: int, heads: int = HEADS) -> None:
        super().__init__()
        self.kind: AttentionKind = "plain"
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context, width, bias=False)
        self.value = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, context: Tensor, bias: Tensor | None = None) -> Tensor:
        n, length, width = tokens.shape

        def heads(x: Tensor) -> Tensor:
            return x.reshape(n, -1, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = heads(self.query(tokens)), heads(self.key(context)), heads(self.value(context))
        if self.kind == "fused":
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        elif self.kind == "sliced":
            slices = zip(query.split(1, 1), key.split(1, 1), value.split(1, 1), strict=True)
            seen = torch.cat([self.see(*one, bias) for one in slices], 1)
        else:
            seen = self.see(query, key, value, bias)
        return self.out(seen.transpose(1, 2).reshape(n, length, width))

    def see(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        return (scores if bias is None else scores + bias).softmax(3) @ value


class Words(nn.Module):
    """Prompts as vectors: one for each word, and one for all."""

    def __init__(self, count: int, most: int, out: int) -> None:
        super().__init__()
        self.word = nn.Embedding(count, WORD)
        self.place = nn.Parameter(torch.randn(most, WORD) * 0.02)
        self.norms = nn.ModuleList([nn.LayerNorm(WORD) for _ in range(4)])
        self.attention = nn.ModuleList([Attention(WORD, WORD) for _ in range(2)])
        self.think = nn.ModuleList(
            [nn.Sequential(nn.Linear(WORD, 2 * WORD), nn.GELU(), nn.Linear(2 * WORD, WORD)) for _ in range(2)]
        )
        self.norm = nn.LayerNorm(WORD)
        self.all = nn.Linear(WORD, out)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return vectors of words, a bias for what reads them, and the vector of the whole prompt."""
        is_word = (words > 0).float()
        # Where there is no word at all, the first place may be read.
        first = F.one_hot(torch.zeros_like(words[:, 0]), words.shape[1]).float()
        is_read = torch.maximum(is_word, first)
        bias = ((is_read - 1) * 1e4)[:, None, None]
        x = self.word(words) + self.place
        for layer in range(2):
            read = self.norms[2 * layer](x)
            x = x + self.attention[layer](read, read, bias)
            x = x + self.think[layer](self.norms[2 * layer + 1](x))
        x = self.norm(x)
        mean = (x * is_read[..., None]).sum(1) / is_read.sum(1, keepdim=True)
        return x, bias, self.all(mean)


class Block(nn.Module):
    """Two convolutions that know the time and the prompt."""

    def __init__(self, before: int, after: int, condition: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, before), nn.GroupNorm(8, after)])
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.scale = nn.Linear(condition, 2 * after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.scale(condition)[:, :, None, None].chunk(2, 1)
        y = self.first(F.silu(self.norms[0](x)))
        y = self.second(F.silu(self.norms[1](y) * (1 + scale) + shift))
        return self.skip(x) + y


class Look(nn.Module):
    """Places of the picture look at each other, then at the words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.places = Attention(width, width)
        self.words = Attention(width, WORD)

    def forward(self, x: Tensor, words: Tensor, bias: Tensor) -> Tensor:
        n, width, high, wide = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        read = self.norms[0](tokens)
        tokens = tokens + self.places(read, read)
        tokens = tokens + self.words(self.norms[1](tokens), words, bias)
        return tokens.transpose(1, 2).reshape(n, width, high, wide)


class Network(nn.Module):
    """Takes noisy pictures, their times (0 to 999) and prompts. Any width and height that 4 divides."""

    def __init__(self, count: int, most: int) -> None:
        super().__init__()
        condition = 2 * WIDER
        self.words = Words(count, most, condition)
        self.time = nn.Sequential(nn.Linear(64, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.into = nn.Conv2d(12 + 4, WIDE, 3, padding=1)
        self.down = Block(WIDE, WIDE, condition)
        self.halve = nn.Conv2d(WIDE, WIDER, 3, stride=2, padding=1)
        self.deep = nn.ModuleList([Block(WIDER, WIDER, condition) for _ in range(3)])
        self.look = nn.ModuleList([Look(WIDER) for _ in range(2)])
        self.rise = nn.Conv2d(WIDER, WIDE, 3, padding=1)
        self.up = nn.ModuleList([Block(2 * WIDE, WIDE, condition), Block(WIDE, WIDE, condition)])
        self.norm = nn.GroupNorm(8, WIDE)
        self.out = nn.Conv2d(WIDE, 12, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, pixels: Tensor, times: Tensor, words: Tensor) -> Tensor:
        vectors, bias, whole = self.words(words)
        rates = torch.exp(-math.log(10_000) * torch.arange(32, device=pixels.device) / 32)
        angles = times[:, None].float() * rates
        condition = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)) + whole)
        fine = F.pixel_unshuffle(pixels, 2)
        fine = self.down(self.into(torch.cat([fine, places(fine)], 1)), condition)
        x = self.deep[0](self.halve(fine), condition)
        x = self.look[0](x, vectors, bias)
        x = self.deep[1](x, condition)
        x = self.look[1](x, vectors, bias)
        x = self.deep[2](x, condition)
        x = self.rise(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.up[0](torch.cat([x, fine], 1), condition)
        x = self.up[1](x, condition)
        return F.pixel_shuffle(self.out(F.silu(self.norm(x))), 2)


def places(x: Tensor) -> Tensor:
    """Return where each pixel is: its distance from the middle, as a share of the picture and in pixels."""
    one = torch.ones_like(x[:, :1])
    found = []
    for axis in (2, 3):
        far = one.cumsum(axis) - 0.5
        length = one.sum(axis, keepdim=True)
        found += [far / length - 0.5, (far - length / 2) / 8]
    return torch.cat(found, 1)


def use_attention(network: nn.Module, kind: AttentionKind) -> None:
    """Choose how attention is computed."""
    for module in network.modules():
        if isinstance(module, Attention):
            module.kind = kind
