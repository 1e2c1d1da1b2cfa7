"""Load a model and say how fast it answers: latency from the instant a request was due, and why.

A TARGET (file.py, package.module:Name, a ready-made model) is served for the time of the measurement; a URL is that of
a server that runs already: http://HOST:PORT/NAME. Durations are in seconds.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jitney.bench import compare, document, page, session
from jitney.bench.doors import DOORS
from jitney.bench.measure import error_share, try_out
from jitney.bench.options import ARRIVALS, BURST, CONNECTIONS, USERS, Run, load_of, seconds, think
from jitney.bench.subject import Wanted, read_key, subject
from jitney.cli.options import add_layers
from jitney.errors import ConfigError

HELP = "load a model and say how fast it answers"
API_KEY = "JITNEY_API_KEY"
FAILED = 1
DURATION_S, WARMUP_S = 10, 2
POINT_S, POINT_WARMUP_S = 3, 1
"""Of each load of a sweep."""

Value = TypeVar("Value")


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
        help="tell two measurements apart, or from noise; measures nothing",
    )
    results.add_argument(
        "--max-error-share",
        type=_of(float, "a share from 0 to 1", lambda share: 0 <= share <= 1),
        default=0.01,
        metavar="SHARE",
        help="exit with 1 if a larger share of requests is refused or fails (default: 0.01)",
    )
    add_layers(parser)


def _add_load(group: Any) -> None:
    """Durations are in seconds."""
    length = _of(seconds, "a number of seconds, 0 or more")
    positive = _of(seconds, "a number of seconds above 0", lambda value: value > 0)
    count = _of(int, "a whole number, 1 or more", lambda value: value >= 1)
    rate = _of(float, "a number above 0", lambda value: value > 0)
    group.add_argument("--users", type=count, metavar="N", help=f"one request each at a time (default: {USERS})")
    group.add_argument("--ramp", type=length, metavar="S", help="users start evenly over this time (default: 0)")
    group.add_argument(
        "--think", type=_of(think, "0.5, or 0.2..1"), metavar="S|S..S", help="between an answer and the next request"
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
    group.add_argument("--timeout", type=positive, default=60.0, metavar="S", help="for one request (default: 60)")
    group.add_argument("--interval", type=positive, metavar="S", help="of the series (default: a 20th, 1 at most)")
    group.add_argument("--threads", type=count, default=1, metavar="N", help="of the load generator (default: 1)")
    group.add_argument("--seed", type=count, default=1, metavar="N", help="of all that is random (default: 1)")
    group.add_argument("--repeat", type=count, default=1, metavar="N", help="runs, one after the other (default: 1)")


def _add_inputs(group: Any) -> None:
    group.add_argument("--door", choices=list(DOORS), help="the route and its bodies (default: native)")
    group.add_argument("--model", metavar="NAME", help="the deployment, if there are several")
    group.add_argument("--items", type=_of(int, "a whole number"), metavar="N", help="items per request (not native)")
    group.add_argument(
        "--input", metavar="FILE|FOLDER", help="lines of .jsonl or .txt, a file, a folder (default: the examples)"
    )
    group.add_argument("--content-type", metavar="TYPE", help="of the inputs (default: by the file's name)")
    group.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help="further one; repeatable")
    group.add_argument("--key-file", metavar="FILE", help=f"holds the API key; {API_KEY} in the environment does too")


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


def run(arguments: argparse.Namespace) -> int:
    """Measure or compare; returns 1 if too little was answered."""
    if arguments.compare is not None:
        return _compare(arguments)
    wanted, run = _wanted(arguments), _run(arguments)
    for path in (arguments.json, arguments.html):
        if path is not None:
            document.check_writable(path)
    with subject(wanted) as (found, source):
        try_out(found, run.timeout_s)
        about = {
            "target": None if wanted.is_url else wanted.where,
            "url": found.address.url + found.requests.path,
            "door": wanted.door or "native",
            "model": found.model,
            "headers": [name for name, _ in wanted.headers],
        }
        plan = document.plan(about, found.requests, source, run, arguments.repeat)
        kind = "sweep" if arguments.sweep else "load"
        made = document.document(kind, plan, found.site.version if found.site else None)
        _say(f"{plan['url']}: {_briefly(run, arguments)}")
        if arguments.sweep:
            made |= session.swept(found, run, is_bounded=arguments.users is not None, say=_say)
        else:
            made |= session.repeated(found, run, arguments.repeat, _say)
    if arguments.json:
        document.write(arguments.json, made)
    if arguments.html:
        page.write(arguments.html, made)
    # A sweep goes on until it is refused.
    return _verdict(made["runs"], arguments.max_error_share) if kind == "load" else _answered(made)


def _say(text: str) -> None:
    print(text, flush=True)


def _briefly(run: Run, arguments: argparse.Namespace) -> str:
    what = "a sweep" if arguments.sweep else str(run.load)
    return f"{what}, {run.duration_s:g} s after {run.warmup_s:g} s of warm-up"


def _compare(arguments: argparse.Namespace) -> int:
    given = [name for name in ("where", "json", "sweep") if getattr(arguments, name)]
    if given:
        raise ConfigError(f"--compare reads two files and measures nothing; leave {given[0]} away")
    if arguments.html is not None:
        document.check_writable(arguments.html)
    sides, names = [document.read(path) for path in arguments.compare], arguments.compare
    _say("\n".join(compare.told(sides[0], sides[1], names)))
    if arguments.html is not None:
        plan = {"url": " and ".join(names)}
        page.write(arguments.html, document.document("compare", plan, None) | {"names": names, "sides": sides})
    return 0


def _answered(made: Mapping[str, Any]) -> int:
    if any(point["run"]["requests"]["answered"] for point in made["points"]):
        return 0
    print("jitney: nothing was answered", file=sys.stderr)
    return FAILED


def _verdict(runs: list[dict[str, Any]], most: float) -> int:
    worst = max(runs, key=error_share)
    share = error_share(worst)
    if not any(run["requests"]["answered"] for run in runs):
        print("jitney: nothing was answered", file=sys.stderr)
        return FAILED
    if share > most:
        print(
            f"jitney: {share:.1%} of the requests were refused or failed, more than {most:.1%} (--max-error-share)",
            file=sys.stderr,
        )
        return FAILED
    return 0


def _run(arguments: argparse.Namespace) -> Run:
    load = load_of(vars(arguments))
    if arguments.sweep and arguments.repeat > 1:
        raise ConfigError(f"--repeat {arguments.repeat} makes no sense with --sweep: leave one of them away")
    duration_s, warmup_s = (POINT_S, POINT_WARMUP_S) if arguments.sweep else (DURATION_S, WARMUP_S)
    return Run(
        load,
        duration_s if arguments.duration is None else arguments.duration,
        warmup_s if arguments.warmup is None else arguments.warmup,
        arguments.timeout,
        arguments.interval,
        arguments.threads,
        arguments.seed,
    )


def _wanted(arguments: argparse.Namespace) -> Wanted:
    if arguments.where is None:
        raise ConfigError("say what to measure: jitney bench TARGET or jitney bench URL")
    headers = [_header(text) for text in arguments.header]
    key = read_key(arguments.key_file, os.environ.get(API_KEY))
    if key is not None:
        headers.append(("authorization", f"Bearer {key}"))
    serve = [part for text in arguments.sets for part in ("--set", text)]
    if arguments.config is not None:
        serve += ["--config", arguments.config]
    return Wanted(
        arguments.where,
        arguments.door,
        arguments.model,
        arguments.items,
        arguments.input,
        arguments.content_type,
        headers,
        serve,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"--header {text!r} is no header; write 'NAME: VALUE'")
    return name.strip().lower(), value.strip()
