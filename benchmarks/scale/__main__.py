"""`make bench-scale`: measures workers on other machines, replicas on Ray, and models that use each other."""

import argparse
import dataclasses
import shutil
import sys

import run
from scenarios import Settings

from scale import replicas, silent, stages, unequal, wire
from scale.places import why_not

MODULES = (wire, stages, unequal, replicas, silent)
PARTS = [part for module in MODULES for part in module.PARTS]
TARGETS = [target for module in MODULES for target in module.TARGETS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="length of one measurement (default: %(default)s)")
    parser.add_argument("--only", metavar="WORDS", default="", help="only the parts whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one short repetition: does everything run?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repetitions, arguments.seconds = 1, 2
    if reason := why_not() or ("" if shutil.which("wrk") else "wrk is not on PATH (the package wrk)"):
        print(f"nothing can be measured: {reason}", file=sys.stderr)
        return 1
    chosen = [part for part in PARTS if arguments.only in part.name]
    settings = Settings(arguments.seconds, arguments.seconds)
    samples: run.Samples = {}
    missing: list[str] = []
    for repetition in range(arguments.repetitions):
        for part in chosen:
            for variant in part.variants:
                if reason := part.why_not(variant):
                    missing += [f"{part.name}, {variant}: {reason}"] if repetition == 0 else []
                    continue
                progress = f"{repetition + 1}/{arguments.repetitions}"
                print(f"  {progress}  {part.name}: {variant}", file=sys.stderr, flush=True)
                try:
                    figures = part.measure(variant, settings)
                except RuntimeError as error:  # a server that does not start: what was measured before is kept
                    missing.append(f"{part.name}, {variant}: {str(error).splitlines()[0]}")
                    continue
                samples.setdefault(part.name, {}).setdefault(variant, []).append(figures)
    for line in missing:
        print(f"not measured: {line}", file=sys.stderr)
    method = {"repetitions": arguments.repetitions, **dataclasses.asdict(settings)}
    run.write(samples, TARGETS, method, missing, "scale-quick" if arguments.quick else "scale")
    return 0


if __name__ == "__main__":
    sys.exit(main())
