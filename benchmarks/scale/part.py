"""One thing that `make bench-scale` measures."""

from collections.abc import Callable
from dataclasses import dataclass

from scenarios import Settings


@dataclass(frozen=True)
class Part:
    """What is measured, in which variants, which are compared. Each measurement starts everything anew."""

    name: str
    variants: tuple[str, ...]
    measure: Callable[[str, Settings], dict[str, float]]
    why_not: Callable[[str], str] = lambda _: ""
    """Why a variant cannot be measured here; empty if it can."""
