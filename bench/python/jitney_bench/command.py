"""What `jitney bench` does with its arguments."""

import argparse
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from jitney.config.layers import deployment_options, flag_of
from jitney.errors import ConfigError

from jitney_bench import session
from jitney_bench.measure import error_share, try_out
from jitney_bench.options import (
    CLIENT_KEY,
    DURATION_S,
    POINT_S,
    POINT_WARMUP_S,
    WARMUP_S,
    Closed,
    Run,
    check_interval,
    check_users,
    load_of,
)
from jitney_bench.reports import compare, document, page
from jitney_bench.subject import Wanted, read_key, subject

FAILED = 1
_NAME, _VALUE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"), re.compile(r"[ -~]*")
"""Of a header."""
_OWN = {"content-length": "", "transfer-encoding": "", "content-type": "; say --content-type"}
"""Headers that the generator writes itself."""
_MEASURING = (
    *("where", "json", "sweep", "users", "ramp", "think", "rate", "arrivals", "burst", "connections", "duration"),
    *(
        "warmup",
        "interval",
        "protocol",
        "stream",
        "model",
        "items",
        "input",
        "content_type",
        "header",
        "key_file",
        "sets",
    ),
)
"""Arguments of a measurement, without those that have a default."""


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
            "protocol": wanted.protocol or "native",
            "model": found.model,
            "headers": [name for name, _ in wanted.headers],
            "options": found.options(),
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
    given = [
        name for name in (*_MEASURING, *deployment_options()) if getattr(arguments, name, None) not in (None, False, [])
    ]
    if given:
        what = arguments.where if given[0] == "where" else f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"--compare reads two files and measures nothing; leave {what} away")
    if arguments.html is not None:
        document.check_writable(arguments.html)
    sides, names = [document.read(path) for path in arguments.compare], arguments.compare
    _say("\n".join(compare.comparison_lines(sides[0], sides[1], names)))
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
            f"jitney: {share:.1%} of what was asked was refused or failed, more than {most:.1%} (--max-error-share)",
            file=sys.stderr,
        )
        return FAILED
    return 0


def _run(arguments: argparse.Namespace) -> Run:
    load = load_of(vars(arguments))
    if arguments.sweep and arguments.repeat > 1:
        raise ConfigError(f"--repeat {arguments.repeat} makes no sense with --sweep: leave one of them away")
    duration_s, warmup_s = (POINT_S, POINT_WARMUP_S) if arguments.sweep else (DURATION_S, WARMUP_S)
    if arguments.duration is not None:
        duration_s = arguments.duration
    if arguments.warmup is not None:
        warmup_s = arguments.warmup
    if isinstance(load, Closed):
        check_users(load, warmup_s, duration_s, arguments.threads, is_sweep=arguments.sweep)
    if arguments.interval is not None:
        check_interval(arguments.interval, duration_s)
    return Run(
        load,
        duration_s,
        warmup_s,
        arguments.timeout,
        arguments.interval,
        arguments.threads,
        arguments.seed,
    )


def _wanted(arguments: argparse.Namespace) -> Wanted:
    if arguments.where is None:
        raise ConfigError("say what to measure: jitney bench TARGET or jitney bench URL")
    headers = [_header(text) for text in arguments.header]
    key = read_key(arguments.key_file, os.environ.get(CLIENT_KEY))
    if key is not None:
        if any(name == "authorization" for name, _ in headers):
            raise ConfigError(
                f"--header authorization is sent for the API key ({CLIENT_KEY}, --key-file): leave one away"
            )
        headers.append(("authorization", f"Bearer {key}"))
    serve = [part for text in arguments.sets for part in ("--set", text)]
    if arguments.config is not None:
        serve += ["--config", arguments.config]
    for name in deployment_options():
        value = getattr(arguments, name, None)
        serve += [] if value is None else [flag_of(name), value]
    return Wanted(
        arguments.where,
        arguments.protocol,
        arguments.model,
        arguments.items,
        arguments.input,
        arguments.content_type,
        headers,
        serve,
        arguments.stream,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"--header {text!r} is not a header; write 'NAME: VALUE'")
    name, value = name.strip().lower(), value.strip()
    if name in _OWN:
        raise ConfigError(f"--header {text!r}: {name} follows from what is sent{_OWN[name]}")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ConfigError(f"--header {text!r} holds what HTTP does not allow there; keep to ASCII without line breaks")
    return name, value
