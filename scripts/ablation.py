"""Measure what each learned part and each tuned constant of the scheduler is worth, in the simulator.

It copies `crates/core` to a scratch folder and lets the environment switch off every constant of CONSTANTS and every
part of PARTS. Then it builds once, and runs the simulator's scenarios (`tests/batching/worth.rs`) once with all parts
and once without each of them.

    python scripts/ablation.py                              the table, as Markdown
    python scripts/ablation.py --only pacing RETURN_WORTH   these rows
    python scripts/ablation.py --gates --only pacing        runs the tests too, and lists those that fail

A cell is the geometric mean over the scenarios of a gate of the figure without the part / the figure with it, in
percent above 1. Figures are latencies, or seconds for each answer: above 0 is worse.
"""

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHOICE = "JITNEY_ABLATION"
INF = math.inf

# File below crates/core/src: constant, and the value that switches it off.
CONSTANTS = {
    "policy/hold.rs": {
        "RETURN_WORTH": 0,
        "BURST_WORTH": 0,
        "RETURNS_OVER_CHANCE": 0,
        "RETURNS_AT_LEAST": 0,
        "WAITS": 1,
        "TIMER_S": 0,
        "LATENESS_WEIGHT": 0,
    },
    "policy/hold_ledger.rs": {"LARGEST_BALANCE": INF},
    "policy/batch_size.rs": {"CAUTION": 1, "USUAL_SCATTER": 0, "MOST_DOUBT": 0, "FRONT_S": 0},
    "policy/similar_length.rs": {"WINDOW_BATCHES": 1, "LEAST_LAUNCH": 0},
    "learn/traffic.rs": {
        "NEEDED": 1,
        "NEEDED_BATCHES": 0,
        "ALONE_AFTER": INF,
        "WINDOW_BATCHES": 1,
        "LEAST_S": 1e-9,
    },
    "learn/size_model.rs": {
        "SIZE_BELIEVED_AFTER": INF,
        "MEMORY": INF,
        "FADES_OVER": INF,
        "LATELY": 1,
        "OUTLIER": INF,
        "SCATTER_WEIGHT": 0,
        "SURPRISE": INF,
        "SURPRISE_OVER_SCATTER": 0,
        "NOISE_S": 0,
    },
    "learn/cost_model.rs": {
        "JUDGED_AFTER": 0,
        "DIFFERENT": 0,
        "BETTER": 1,
        "WORST_MISFIT": INF,
        "MOST_WEIGHT": INF,
        "LARGEST": INF,
        "MOST_EACH": INF,
    },
    "scheduler/admission/forecast.rs": {"SHARE_OF_TARGET": 1, "ALLOWED_TARGETS": 1},
}

# Part: file, text, and what replaces the text; `OFF` is whether the part is switched off.
PARTS = {
    "moves between groups": (
        "learn/group_transitions.rs",
        "match self.after.get(&from) {",
        "match self.after.get(&from).filter(|_| !OFF) {",
    ),
    "S(n) of each group": (
        "learn/group_models.rs",
        "self.groups.get(&group).map_or(&self.all,",
        "self.groups.get(&group).filter(|_| !OFF).map_or(&self.all,",
    ),
    "a new group begins with the deployment's S(n)": (
        "learn/group_models.rs",
        "let guess = self.all.as_a_guess();",
        "let guess = if OFF { CostModel::default() } else { self.all.as_a_guess() };",
    ),
    "costs of items": (
        "learn/cost_model.rs",
        "if load.cost != load.items as u64 || self.by_units.is_some() {",
        "if !OFF && (load.cost != load.items as u64 || self.by_units.is_some()) {",
    ),
    "similar lengths together": ("policy/auto.rs", "|| waits < 2 ||", "|| OFF || waits < 2 ||"),
    "sizes below what waits": ("policy/batch_size.rs", "|| most <= 1 {", "|| OFF || most <= 1 {"),
    "free replicas share what waits": (
        "policy/batch_size.rs",
        ".max(1);\n",
        ".max(1).min(if OFF { 1 } else { usize::MAX });\n",
    ),
    "batches are not cut for a lost head": ("policy/auto.rs", "&& is_lost(", "&& !OFF && is_lost("),
    "more lanes than one": (
        "policy/auto.rs",
        ".take(LANES_LOOKED_AT).collect",
        ".take(if OFF { 1 } else { LANES_LOOKED_AT }).collect",
    ),
    "a second lane is not launched ahead of its returns": (
        "policy/auto.rs",
        "shortest.reason.is_some() &&",
        "!OFF && shortest.reason.is_some() &&",
    ),
    "full batches sent ahead": (
        "policy/auto.rs",
        "if view.cost_model_of(lane).measure() == Measure::Padded {\n            return None",
        "if OFF || view.cost_model_of(lane).measure() == Measure::Padded {\n            return None",
    ),
    "holds for returns and bursts": (
        "policy/hold.rs",
        "let (mut best, mut best_value) = (Wait::NONE, 0.0);",
        "let (mut best, mut best_value) = (Wait::NONE, if OFF { f64::INFINITY } else { 0.0 });",
    ),
    "a hold for returns goes on": ("policy/hold.rs", "(self.is_expecting ||", "((!OFF && self.is_expecting) ||"),
    "pacing": ("policy/hold.rs", "if view.replicas == 1 ||", "if OFF || view.replicas == 1 ||"),
    "gaps by phase": (
        "learn/traffic.rs",
        "self.gaps[self.phase as usize]",
        "self.gaps[if OFF { 0 } else { self.phase as usize }]",
    ),
    "the phase after the last return": (
        "learn/traffic.rs",
        "self.phase == Phase::Going && self.answers",
        "!OFF && self.phase == Phase::Going && self.answers",
    ),
    "answers of the same group first": (
        "learn/traffic.rs",
        "|answers| answers.group == group)",
        "|answers| !OFF && answers.group == group)",
    ),
    "clients that never return": (
        "learn/traffic.rs",
        "(0..answers.missing.min(KEPT))",
        "(0..if OFF { 0 } else { answers.missing.min(KEPT) })",
    ),
    "a warm-up is dropped": ("learn/size_model.rs", "if size.weight > 0.5 &&", "if !OFF && size.weight > 0.5 &&"),
    "scatter in what a batch takes at most": (
        "learn/size_model.rs",
        "self.scatter / 2.0",
        "if OFF { 0.0 } else { self.scatter / 2.0 }",
    ),
    "doubts about a new size": ("learn/size_model.rs", "&& !is_far && !is_new {", "&& !is_far && (OFF || !is_new) {"),
    "what changed twice is forgotten": ("learn/size_model.rs", "} else if was > 0 &&", "} else if !OFF && was > 0 &&"),
}

SUPPORT = """
/// What `scripts/ablation.py` switches off.
pub(crate) fn ablation(name: &str) -> Option<f64> {
    let choice = std::env::var("JITNEY_ABLATION").ok()?;
    let (chosen, value) = choice.split_once('=')?;
    if chosen == name { value.parse().ok() } else { None }
}
"""


def readable_constants(text: str, path: str, names: list[str]) -> str:
    """Let each constant be read from the environment, once."""
    for name in names:
        text, count = re.subn(
            rf"^(pub )?const {name}: (\w+) = ([^;]+);",
            rf"#[allow(non_snake_case)]\n\1fn {name}_() -> \2 {{ "
            rf"static VALUE: std::sync::LazyLock<\2> = std::sync::LazyLock::new(|| "
            rf'crate::ablation("{path}:{name}").map_or(\3, |value| value as \2)); *VALUE }}',
            text,
            flags=re.MULTILINE,
        )
        if count != 1:
            sys.exit(f"{path} has no constant '{name}'; update CONSTANTS")
        lines = text.split("\n")
        uses = (
            line if line.lstrip().startswith("//") else re.sub(rf"(?<![\w:\"]){name}\b", f"{name}_()", line)
            for line in lines
        )
        text = "\n".join(uses)
    return text


def patched_parts(text: str, path: str) -> str:
    """Let each part of this file be switched off."""
    for number, (name, (file, old, new)) in enumerate(PARTS.items()):
        if file != path:
            continue
        if old not in text:
            sys.exit(f"{path} has no text '{old}', which belongs to '{name}'; update PARTS")
        static = (
            f"\nstatic PART_{number}: std::sync::LazyLock<bool> = "
            f'std::sync::LazyLock::new(|| crate::ablation("{name}").is_some());\n'
        )
        text = text.replace(old, new.replace("OFF", f"*PART_{number}")) + static
    return text


def build(folder: Path) -> Path:
    """Copy and patch the crate, build its simulator and return the program."""
    shutil.rmtree(folder / "crates", ignore_errors=True)
    shutil.copytree(ROOT / "crates/core", folder / "crates/core")
    shutil.copy(ROOT / "Cargo.lock", folder)
    manifest = (ROOT / "Cargo.toml").read_text()
    (folder / "Cargo.toml").write_text(re.sub(r"members = \[[^]]*\]", 'members = ["crates/core"]', manifest))
    source = folder / "crates/core/src"
    for file in sorted(source.rglob("*.rs")):
        path = file.relative_to(source).as_posix()
        text = patched_parts(file.read_text(), path)
        file.write_text(readable_constants(text, path, list(CONSTANTS.get(path, {}))))
    with (source / "lib.rs").open("a") as file:
        file.write(SUPPORT)
    command = ["cargo", "test", "--quiet", "--test", "batching", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, check=False)
    programs = re.findall(r'"executable":"([^"]+)"', built.stdout)
    if built.returncode or not programs:
        sys.exit(
            "the patched crate does not build: "
            + "".join(re.findall(r'"rendered":"(error[^"]+)"', built.stdout))[:3000]
        )
    return Path(programs[-1])


def run(program: Path, choice: str, *arguments: str) -> str:
    """Run the simulator with this part switched off, and return all that it prints."""
    environment = {**os.environ, CHOICE: choice}
    command = [program, *arguments]
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.stdout


def figures(program: Path, choice: str) -> dict[tuple[str, str], float]:
    """Return the figure of each scenario, by gate and scenario."""
    lines = run(program, choice, "figures_of_all_gates", "--ignored", "--nocapture").splitlines()
    rows = [line.partition("worth\t")[2].split("\t") for line in lines if "worth\t" in line]
    return {(gate, scenario): float(figure) for gate, scenario, figure in rows}


def failed_gates(program: Path, choice: str) -> list[str]:
    """List the tests of the simulator that fail."""
    return sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED", run(program, choice, "--test-threads=1"), re.MULTILINE)))


def row(gates: list[str], with_all: dict[tuple[str, str], float], without: dict[tuple[str, str], float]) -> list[str]:
    """Format one part: each gate's geometric mean, and the scenario that lost most."""
    logs = {key: math.log(without.get(key, INF) / figure) for key, figure in with_all.items()}
    cells: list[str] = []
    for gate in gates:
        own = [log for key, log in logs.items() if key[0] == gate]
        percent = 100 * math.expm1(sum(own) / len(own))
        cells.append("0" if abs(percent) < 0.05 else f"**{percent:+.1f}**" if percent >= 0.5 else f"{percent:+.1f}")
    gate, scenario = worst = max(logs, key=lambda key: logs[key])
    return [*cells, f"{100 * math.expm1(logs[worst]):+.0f}: {gate}, {scenario}" if logs[worst] > 1e-4 else "0"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to measure; default: all")
    parser.add_argument("--gates", action="store_true", help="also run the tests, and list those that fail")
    parser.add_argument("--folder", type=Path, help="scratch folder that is kept; default: a temporary folder")
    parser.add_argument("--jobs", type=int, default=1, help="simulators at once; default: 1")
    options = parser.parse_args()
    choices = {
        f"{name} = {value}": f"{path}:{name}={value}"
        for path, values in CONSTANTS.items()
        for name, value in values.items()
    }
    choices |= {name: f"{name}=1" for name in PARTS}
    if options.only:
        choices = {
            name: choice
            for name, choice in choices.items()
            if name.partition(" = ")[0] in options.only or name in options.only
        }
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        program = build(folder)
        with_all = figures(program, "")
        gates = list(dict.fromkeys(gate for gate, _ in with_all))
        titles = ["switched off", *gates, "worst scenario", *(["gates that fail"] if options.gates else [])]
        print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles), flush=True)

        def measured(choice: str) -> list[str]:
            cells = row(gates, with_all, figures(program, choice))
            return [*cells, ", ".join(failed_gates(program, choice)) or "none"] if options.gates else cells

        with ThreadPoolExecutor(options.jobs) as pool:
            for name, cells in zip(choices, pool.map(measured, choices.values()), strict=True):
                print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
