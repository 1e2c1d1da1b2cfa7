"""The arguments of `jitney bench`. Imports no HTTP client: `jitney` reads them for every command."""

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from jitney_bench.options import (
    ARRIVALS,
    BURST,
    CLIENT_KEY,
    CONNECTIONS,
    DURATION_S,
    LONGEST_S,
    POINT_S,
    POINT_WARMUP_S,
    USERS,
    WARMUP_S,
    seconds,
    think,
)
from jitney_bench.requests.protocols import PROTOCOLS

Value = TypeVar("Value")
MOST = 1_000_000
"""Of anything that is counted on the command line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to load, how, and what to write."""
    parser.add_argument("where", metavar="TARGET|URL", nargs="?", help="what to measure")
    _add_load(parser.add_argument_group("load"))
    _add_inputs(parser.add_argument_group("what is sent"))
    results = parser.add_argument_group("results")
    results.add_argument("--json", metavar="FILE", help="write all that was measured")
    results.add_argument("--html", metavar="FILE", help="write it as a page with plots, in one file")
    results.add_argument(
        "--sweep",
        action="store_true",
        help="from little load to too much: users doubling up to --users, or rates up to --rate",
    )
    results.add_argument(
        "--compare",
        nargs=2,
        metavar=("A.json", "B.json"),
        help="compare two measurements, and find what is noise; measures nothing",
    )
    results.add_argument(
        "--max-error-share",
        type=_of(float, "a share from 0 to 1", lambda share: 0 <= share <= 1),
        default=0.01,
        metavar="SHARE",
        help="exit with 1 if a larger share of requests is refused or fails (default: 0.01)",
    )


def _add_load(group: Any) -> None:
    """Durations are in seconds."""
    length = _of(seconds, "a number of seconds, 0 or more")
    positive = _of(seconds, "a number of seconds above 0", lambda value: value > 0)
    count = _of(int, "a whole number from 1 to 1,000,000", lambda value: 1 <= value <= MOST)
    rate = _of(float, "a number above 0, 10,000,000 at most", lambda value: 0 < value <= 10 * MOST)
    group.add_argument("--users", type=count, metavar="N", help=f"one request each at a time (default: {USERS})")
    group.add_argument("--ramp", type=length, metavar="S", help="users start evenly over this time (default: 0)")
    group.add_argument(
        "--think",
        type=_of(think, "0.5, or 0.2..1 with the smaller one first"),
        metavar="S|S..S",
        help="between an answer and the next request",
    )
    group.add_argument("--rate", type=rate, metavar="R", help="requests per second, whatever the answers do")
    group.add_argument("--arrivals", choices=ARRIVALS, help="how they are spread (default: poisson)")
    group.add_argument("--burst", type=count, metavar="N", help=f"requests in a burst (default: {BURST})")
    group.add_argument(
        "--connections", type=count, metavar="N", help=f"open at most; further requests wait (default: {CONNECTIONS})"
    )
    group.add_argument(
        "--duration",
        type=positive,
        metavar="S",
        help=f"what is measured (default: {DURATION_S}; {POINT_S} for each load of a sweep)",
    )
    group.add_argument(
        "--warmup",
        type=length,
        metavar="S",
        help=f"what comes before (default: {WARMUP_S}; {POINT_WARMUP_S} in a sweep)",
    )
    limited = _of(seconds, f"seconds above 0, and {LONGEST_S} at most", lambda value: 0 < value <= LONGEST_S)
    group.add_argument("--timeout", type=limited, default=60.0, metavar="S", help="for one request (default: 60)")
    group.add_argument("--interval", type=positive, metavar="S", help="of the series (default: a 20th, 1 at most)")
    group.add_argument("--threads", type=count, default=1, metavar="N", help="of the load generator (default: 1)")
    group.add_argument("--seed", type=count, default=1, metavar="N", help="of all that is random (default: 1)")
    group.add_argument("--repeat", type=count, default=1, metavar="N", help="runs, one after the other (default: 1)")


def _add_inputs(group: Any) -> None:
    group.add_argument("--protocol", choices=list(PROTOCOLS), help="the route and its bodies (default: native)")
    group.add_argument(
        "--stream",
        action="store_true",
        help="ask for answers in parts; measure the first part, the gaps between parts, and parts per second "
        "(native, chat, completion, or a URL of another server)",
    )
    group.add_argument("--model", metavar="NAME", help="the deployment, if there are several")
    group.add_argument(
        "--items", type=_of(int, "a whole number"), metavar="N", help="items per request (batch, openai, oip)"
    )
    group.add_argument(
        "--input", metavar="FILE|FOLDER", help="lines of .jsonl or .txt, a file, a folder (default: the examples)"
    )
    group.add_argument("--content-type", metavar="TYPE", help="of the inputs (default: by the file's name)")
    group.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help="further one; repeatable")
    group.add_argument(
        "--key-file", metavar="FILE", help=f"holds the API key; {CLIENT_KEY} in the environment does too"
    )


def _of(
    read: Callable[[str], Value], what: str, holds: Callable[[Value], bool] | None = None
) -> Callable[[str], Value]:
    """Make a reader of values that names what it expected."""

    def checked(text: str) -> Value:
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None or (holds is not None and not holds(value)):
            raise argparse.ArgumentTypeError(f"expected {what}, not {text!r}")
        return value

    return checked
