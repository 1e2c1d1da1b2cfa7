"""What a run must be, checked: the load, how long, and what counts as too many errors."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jitney.errors import ConfigError

ARRIVALS = ("poisson", "constant", "bursts")
USERS = 32
BURST = 10
CONNECTIONS = 1000
INTERVALS = 20
SHORTEST_INTERVAL_S = 0.05
MOST_INTERVALS = 100_000
LONGEST_S = 86_400
"""A day: of anything that is waited for."""
DURATION_S, WARMUP_S = 10, 2
POINT_S, POINT_WARMUP_S = 3, 1
"""Of each load of a sweep."""
CLIENT_KEY = "JITNEY_CLIENT_KEY"


@dataclass(frozen=True, slots=True)
class Closed:
    """Users, each with one request at a time."""

    users: int = USERS
    ramp_s: float = 0.0
    think_s: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        """Say it in a few words."""
        return f"{self.users} user{'s' if self.users > 1 else ''}"

    def to_dict(self) -> dict[str, Any]:
        """As the plan has it."""
        return {"kind": "closed", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Open:
    """A schedule that does not look at the answers."""

    rate_per_s: float
    arrivals: str = "poisson"
    burst: int = 1
    connections: int = CONNECTIONS

    def __str__(self) -> str:
        """Say it in a few words."""
        what = f"{self.arrivals} of {self.burst}" if self.arrivals == "bursts" else self.arrivals
        return f"{self.rate_per_s:g} requests/s, {what}"

    def to_dict(self) -> dict[str, Any]:
        """As the plan has it."""
        return {"kind": "open", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Run:
    """One run; durations are in seconds."""

    load: Closed | Open
    duration_s: float = 10.0
    warmup_s: float = 2.0
    timeout_s: float = 60.0
    interval_s: float | None = None
    threads: int = 1
    seed: int = 1

    def to_dict(self) -> dict[str, Any]:
        """As the plan has it."""
        interval_s = self.interval_s or min(1.0, max(SHORTEST_INTERVAL_S, self.duration_s / INTERVALS))
        plain = {name: getattr(self, name) for name in ("duration_s", "warmup_s", "timeout_s", "threads", "seed")}
        return {"load": self.load.to_dict(), **plain, "interval_s": min(interval_s, self.duration_s)}


def load_of(given: Mapping[str, Any]) -> Closed | Open:
    """Choose the loop from what was given (None: not given); options of the other loop are refused."""
    is_open = given["rate"] is not None
    foreign = ("users", "ramp", "think") if is_open else ("arrivals", "burst", "connections")
    for name in foreign:
        if given[name] is not None:
            loop, remedy = ("open", "leave one of them away") if is_open else ("closed", "add --rate")
            with_what = f"--rate {given['rate']:g}" if is_open else "users"
            raise ConfigError(f"--{name} makes no sense in a loop that is {loop} ({with_what}): {remedy}")
    if not is_open:
        users = USERS if given["users"] is None else given["users"]
        return Closed(users, given["ramp"] or 0.0, given["think"] or (0.0, 0.0))
    arrivals = given["arrivals"] or "poisson"
    if given["burst"] is not None and arrivals != "bursts":
        raise ConfigError(f"--burst {given['burst']} makes no sense with --arrivals {arrivals}: say --arrivals bursts")
    burst = (given["burst"] or BURST) if arrivals == "bursts" else 1
    return Open(given["rate"], arrivals, burst, given["connections"] or CONNECTIONS)


def check_users(load: Closed, warmup_s: float, duration_s: float, threads: int, *, is_sweep: bool) -> None:
    """Refuse users of whom some would never ask."""
    if load.ramp_s >= warmup_s + duration_s:
        raise ConfigError(
            f"--ramp {load.ramp_s:g} is longer than the run ({warmup_s:g} s of warm-up and {duration_s:g} s), so some "
            f"of {load} would never ask: say a longer --duration, or a shorter --ramp"
        )
    # A sweep begins with one user, on one thread.
    if not is_sweep and load.users < threads:
        raise ConfigError(f"--threads {threads} is more than there are users ({load}): say {load.users} or fewer")


def check_interval(interval_s: float, duration_s: float) -> None:
    """Refuse intervals of which there would be too many to keep."""
    least_s = max(1, math.ceil(duration_s * 1000 / MOST_INTERVALS)) / 1000
    if interval_s < least_s:
        raise ConfigError(
            f"--interval {interval_s:g} is too short for --duration {duration_s:g}: say {least_s:g} or more "
            f"(there are {MOST_INTERVALS:,} intervals at most, of 1 ms at least)"
        )


def seconds(text: str) -> float:
    """Read a length of time; ValueError if it is none."""
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def think(text: str) -> tuple[float, float]:
    """Read `0.5`, or `0.2..1` for anything between; ValueError if it is neither."""
    first, _, last = text.partition("..")
    least, most = seconds(first), seconds(last or first)
    if most < least:
        raise ValueError(text)
    return least, most
