"""`make bench-stories`: repeats the workloads that the project started from, with their servers and with jitney.

Every variant of a story is measured once, then all again, as often as the story's share of the time allows (five
times at most): a machine that changes its mind changes it for all. What was measured is kept, so a run that was
interrupted goes on where it ended when it is started again with the same settings.
"""

import argparse
import datetime
import json
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import run

from stories import beside, drawing, images, replicas, steady, tokens
from stories.starting import ROOT
from stories.story import Sample, Settings, Story, Variant, report

RESULTS = Path(__file__).resolve().parents[1] / "results"
MODULES = (tokens, steady, images, drawing, beside, replicas)
PACKAGES = ("fastapi", "uvicorn", "locust", "ray", "ctranslate2", "onnxruntime", "numpy", "msgspec")
MOST_REPETITIONS = 5

NOTES = [
    "medians of interleaved repetitions, of which slow stories have fewer than `method` says",
    "every answer is compared with what it must be",
    "ratio: jitney's median over that of the variant which `compared` names",
]

Samples = dict[str, dict[str, list[Sample]]]
"""key of the story → variant → what was measured"""


class Progress:
    """What was measured so far, in a file, so that it is not lost with the process."""

    def __init__(self, path: Path, settings: dict[str, Any], is_fresh: bool) -> None:
        self._path, self._settings = path, settings
        self.samples: Samples = {}
        self.spent_s: dict[str, float] = {}
        if not is_fresh and path.exists():
            kept = json.loads(path.read_text())
            if kept["settings"] == settings:
                self.spent_s = kept["spent_s"]
                self.samples = {
                    key: {name: [Sample(**one) for one in found] for name, found in of.items()}
                    for key, of in kept["samples"].items()
                }

    def keep(self, key: str, variant: str, sample: Sample, took_s: float) -> None:
        self.samples.setdefault(key, {}).setdefault(variant, []).append(sample)
        self.spent_s[key] = self.spent_s.get(key, 0.0) + took_s
        samples = {
            story: {name: [asdict(one) for one in found] for name, found in of.items()}
            for story, of in self.samples.items()
        }
        kept = {"settings": self._settings, "spent_s": self.spent_s, "samples": samples}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(kept))

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def next_variants(story: Story, progress: Progress, most: int) -> list[Variant]:
    """Those that this repetition still lacks; none if all have been measured often enough."""
    found = progress.samples.get(story.key, {})
    counts = {variant.name: len(found.get(variant.name, [])) for variant in story.variants}
    fewest = min(counts.values(), default=most)
    return [variant for variant in story.variants if counts[variant.name] == fewest] if fewest < most else []


def tell(story: Story, progress: Progress, allowed_s: float, most: int) -> list[str]:
    """Measure repetition after repetition while there is time for one more; what went wrong."""
    problems: list[str] = []
    if not story.variants:
        return [f"{story.key}: {story.missing}"]
    story.prepare()
    while variants := next_variants(story, progress, most):
        done = max(len(found) for found in progress.samples.get(story.key, {"": []}).values())
        spent_s = progress.spent_s.get(story.key, 0.0)
        if done and len(variants) == len(story.variants) and spent_s * (1 + 1 / done) > allowed_s:
            break
        for variant in variants:
            print(f"  {story.key}  {variant.name}", file=sys.stderr, flush=True)
            begin = time.monotonic()
            try:
                sample = variant.measure()
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                problems.append(f"{story.key}, {variant.name}: {str(error)[-600:]}")
                return problems
            progress.keep(story.key, variant.name, sample, time.monotonic() - begin)
    return problems


def show(story: dict[str, Any]) -> None:
    """Print one story: theirs, ours, the ratio, and whether it kept its promises."""
    print(f"\n{story['key']}. {story['name']}\n   {story['what']}\n   {story['scaled']}")
    columns = list(dict.fromkeys(name for row in story["rows"] for name in row["metrics"]))
    width = max((len(row["variant"]) for row in story["rows"]), default=0) + 2
    print(f"   theirs: {story['theirs']['label']}\n")
    print(f"   {'':{width}}" + "".join(f"{name:>14}" for name in columns))
    values = story["theirs"]["metrics"]
    cells = (run.number(values[name]) if name in values else "" for name in columns)
    print(f"   {'theirs':{width}}" + "".join(f"{cell:>14}" for cell in cells))
    for row in story["rows"]:
        cells = (run.number(row["metrics"][name]) if name in row["metrics"] else "" for name in columns)
        print(f"   {row['variant']:{width}}" + "".join(f"{cell:>14}" for cell in cells))
    quotients = (run.number(story["ratio"][name]) if name in story["ratio"] else "" for name in columns)
    print(f"   {'ratio':{width}}" + "".join(f"{cell:>14}" for cell in quotients))
    print(f"   (ratio: {story['compared'][0]} / {story['compared'][1]}; medians of {story['repetitions']})\n")
    for target in story["targets"]:
        measured = "" if target["measured"] is None else run.number(target["measured"])
        print(f"   {target['target']:56}{target['bound']:>9}{measured:>9}  {target['verdict']}")


def versions() -> dict[str, str]:
    found = run.versions()
    found["jitney"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True
    )
    return found | {one["name"]: one["version"] for one in json.loads(listed.stdout) if one["name"] in PACKAGES}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-stories", description=__doc__)
    parser.add_argument("--stories", default="", help="numbers or keys with commas between, as in 1,4-opt; all")
    parser.add_argument("--minutes", type=float, default=30, help="for all that were chosen together (default: 30)")
    parser.add_argument(
        "--seconds", type=float, help="of one measurement, about (default: half of the minutes, at most 15)"
    )
    parser.add_argument("--repetitions", type=int, default=MOST_REPETITIONS, help="at most (default: %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="where what is made for the stories is kept")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    parser.add_argument("--output", type=Path, help="file of results (default: results/stories-DATE.json)")
    arguments = parser.parse_args()

    seconds = arguments.seconds or min(15.0, max(3.0, arguments.minutes / 2))
    settings = Settings(seconds, arguments.folder.resolve())
    wanted = [one for one in arguments.stories.split(",") if one]
    everything = [story for module in MODULES for story in module.stories(settings)]
    chosen = [story for story in everything if not wanted or {story.key, story.key.partition("-")[0]} & set(wanted)]
    if not chosen:
        parser.error(f"no story {arguments.stories}; there are {', '.join(story.key for story in everything)}")

    found = versions()
    kept_for = {"seconds": seconds, "repetitions": arguments.repetitions, "commit": found["commit"]}
    progress = Progress(settings.folder / "progress.json", kept_for, arguments.fresh)
    shares = sum(story.share for story in chosen)
    problems: list[str] = []
    reports: list[dict[str, Any]] = []
    for story in chosen:
        allowed_s = arguments.minutes * 60 * story.share / shares
        problems += tell(story, progress, allowed_s, arguments.repetitions)
        reports.append(report(story, progress.samples.get(story.key, {})))
        show(reports[-1])

    now = datetime.datetime.now(datetime.UTC)
    document = {
        "kind": "stories",
        "date": now.isoformat(timespec="seconds"),
        "machine": run.machine(),
        "versions": found,
        "method": {"repetitions": max(one["repetitions"] for one in reports), "seconds": seconds, "notes": NOTES},
        "not_measured": problems + [f"{story.key}: {story.missing}" for story in chosen if story.missing],
        "stories": sorted(reports, key=lambda one: one["key"]),
    }
    path = arguments.output or RESULTS / f"stories-{now:%Y-%m-%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    for line in document["not_measured"]:
        print(f"not measured: {line}", file=sys.stderr)
    print(f"\nwritten to {path.name}")
    if not problems:
        progress.forget()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
