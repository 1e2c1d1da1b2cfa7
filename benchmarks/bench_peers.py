"""`make bench-peers`: installs other servers, measures them and jitney side by side, and writes results/peers-….json.

Each figure is written as soon as it is there; `--resume FILE` goes on where a run ended. How the comparison is made
fair: docs/design/0012-benchmarks.md.
"""

import argparse
import dataclasses
import datetime
import json
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

import run
from peers import environments
from peers.catalog import SERVERS, Server
from peers.environments import NotInstalledError
from peers.generator import Generator, named
from peers.loads import EVERY, LOADS, STREAMS
from peers.measure import USED_UP, Run
from peers.plan import POINTS, SAME, STREAM_POINTS, STREAM_SECONDS, Plan, choose, estimate_s
from peers.report import Report

SECONDS = 5
RESULTS = run.HERE / "results"


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="", help=f"only these, and jitney: {','.join(SERVERS)} (fastapi: all three)")
    parser.add_argument("--loads", default="", help=f"only these: {','.join(EVERY)} (default: {','.join(LOADS)})")
    parser.add_argument(
        "--points",
        default="",
        help=f"only these: {','.join([*POINTS, *SAME])} (default: without `same`; for answers in parts "
        f"{','.join(STREAM_POINTS)})",
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"length of one measurement (default: {SECONDS}; {STREAM_SECONDS} for answers in parts)",
    )
    parser.add_argument("--budget-minutes", type=float, default=90, help="measure what fits (default: %(default)s)")
    parser.add_argument("--generator", choices=("bench", "wrk"), default="bench", help="default: %(default)s")
    parser.add_argument("--tuned", type=Path, help="take the best settings from this file of an earlier run")
    parser.add_argument("--resume", type=Path, help="go on with this file, with its loads, points and lengths")
    parser.add_argument("--max-download-gb", type=float, default=1, help="for one environment (default: %(default)s)")
    parser.add_argument("--install-only", action="store_true", help="make the environments and measure nothing")
    return parser.parse_args()


def words(text: str, known: list[str], what: str) -> list[str]:
    """The names in a list with commas; all of them if it is empty."""
    chosen = [word.strip() for word in text.split(",") if word.strip()]

    def is_meant(name: str, word: str) -> bool:
        return name == word or name.startswith((f"{word}-", f"{word} "))

    for word in chosen:
        if not any(is_meant(name, word) for name in known):
            raise SystemExit(f"{what}: there is no {word!r}; there are {', '.join(known)}")
    return [name for name in known if not chosen or any(is_meant(name, word) for word in chosen)]


def points_of(text: str, generator: Generator, *, are_streams: bool = False) -> tuple[str, ...]:
    """The points in a list with commas that the generator can do; a first word stands for all of its kind."""
    known = dict.fromkeys([*POINTS, *STREAM_POINTS, *SAME])
    asked = words(text, list(known), "POINTS") if text else list(STREAM_POINTS if are_streams else POINTS)
    points = tuple(point for point in asked if generator.open or point.startswith("closed"))
    if not any(point.startswith("closed") for point in points):
        raise SystemExit(
            "POINTS: an open loop offers a share of what the closed ones showed; add one, such as `closed 64`"
        )
    return points


def loads_of(text: str) -> tuple[str, ...]:
    """The loads in a list with commas. Answers in parts are another table, so they are measured alone."""
    loads = tuple(words(text, list(EVERY), "LOADS") if text else LOADS)
    if 0 < sum(load in STREAMS for load in loads) < len(loads):
        raise SystemExit(
            f"LOADS: {', '.join(STREAMS)} are measured in a separate run; name only these, or none of them"
        )
    return loads


def commit() -> str:
    return run.first_line_of(["git", "describe", "--always", "--dirty", "--abbrev=12"])


def check_resumed(resumed: Path, generator: Generator) -> None:
    """Figures of two builds, or of two generators, must not stand in one table."""
    old = json.loads(resumed.read_text())
    for what, was, now in (
        ("commit", old["versions"]["commit"], commit()),
        ("generator", old["generator"]["name"], generator.name),
    ):
        if was != now:
            raise SystemExit(
                f"RESUME: {resumed.name} was measured with the {what} {was}, this is {now}; begin a new file"
            )


def resumed_plan(method: dict[str, Any]) -> Plan:
    """What the run set out to measure: a plan chosen anew could be another, and mix lengths in one table."""
    return Plan(
        tuple(method["loads"]),
        tuple(method["points"]),
        method["repetitions"],
        method["seconds"],
        method["tune_seconds"],
        method["tuned_on"],
    )


def install(servers: list[Server], max_download_gb: float, report: Report | None) -> list[Server]:
    """Those that can be used here; the others are noted with their reason."""
    usable: list[Server] = []
    for server in servers:
        try:
            environments.install(server, max_download_gb)
        except NotInstalledError as error:
            print(f"not installed: {server.name}: {error}", file=sys.stderr)
            if report:
                report.set_server(server, "not installed", "", str(error))
            continue
        if report:
            report.set_server(server, "measured", environments.version(server))
        usable.append(server)
    return usable


def describe(plan: Plan, generator: Generator, arguments: argparse.Namespace) -> dict[str, Any]:
    """The head of the file."""
    notes = [f"left out by the budget of {arguments.budget_minutes:g} minutes: {line}" for line in plan.left_out]
    if generator.open is None:
        notes.append(f"no open loops: {generator.name} has none")
    if arguments.tuned:
        notes.append(f"the servers' settings were tuned in an earlier run ({arguments.tuned.name})")
    method = {
        "repetitions": plan.repetitions,
        "seconds": plan.seconds,
        "tune_seconds": plan.tune_seconds,
        "tuned_on": plan.tuned_on,
        "loads": list(plan.loads),
        "points": list(plan.points),
        "budget_minutes": arguments.budget_minutes,
        "notes": notes,
    }
    return {
        "kind": "stream-peers" if plan.loads[0] in STREAMS else "peers",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": run.machine(),
        "versions": {
            "commit": commit(),
            "python": platform.python_version(),
        },
        "generator": {"name": generator.name, "version": generator.version},
        "method": method,
    }


def main() -> int:
    arguments = arguments_of()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended and the file is closed
    chosen = words(arguments.peers, [name for name in SERVERS if name != "jitney"], "PEERS")
    resumed = json.loads(arguments.resume.read_text())["method"]["loads"] if arguments.resume else None
    loads = tuple(resumed or loads_of(arguments.loads))
    are_streams = loads[0] in STREAMS
    listed = [SERVERS["jitney"], *(SERVERS[name] for name in chosen)]
    if arguments.install_only:
        install(listed, arguments.max_download_gb, None)  # what could not be installed has been said
        return 0
    # A server with a separate entry for answers in parts is only one row of each table.
    servers = [one for one in listed if set(one.loads) & set(loads) or one.missing.keys() & set(loads)]

    generator = named(arguments.generator)
    if arguments.resume:
        check_resumed(arguments.resume, generator)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d-%H%M%S")
    report = Report(arguments.resume or RESULTS / f"peers-{stamp}.json")
    if arguments.tuned:
        report.take_tuning(arguments.tuned)
    usable = install(servers, arguments.max_download_gb, report)
    began = time.monotonic()

    if arguments.resume:
        method: dict[str, Any] = report.data["method"]
        plan = resumed_plan(method)
        # What the time did not allow then is tried now, and noted again if need be.
        notes = [note for note in method["notes"] if not note.endswith(USED_UP)]
        head = describe(plan, generator, arguments) | {"method": method | {"notes": notes}}
    else:
        asked = Plan(
            loads,
            points_of(arguments.points, generator, are_streams=are_streams),
            arguments.repetitions,
            arguments.seconds or (STREAM_SECONDS if are_streams else SECONDS),
        )
        plan = choose(asked, usable, arguments.budget_minutes * 60, report.tuned())
        head = describe(plan, generator, arguments)
    report.data = {**head, **report.data, **head}
    report.save()
    minutes = estimate_s(plan, usable, report.tuned()) / 60
    print(f"about {minutes:.0f} minutes: {dataclasses.replace(plan, left_out=())}", file=sys.stderr)
    for line in plan.left_out:
        print(f"left out: {line}", file=sys.stderr)
    try:
        Run(plan, usable, generator, report).everything(began + arguments.budget_minutes * 60)
    finally:
        report.close()
        print(f"written to {report.path}; `make bench-page` makes the page", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
