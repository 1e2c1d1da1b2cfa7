"""The page says what the results say: no more, and no less."""

import copy
import importlib
import itertools
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
age: Any = importlib.import_module("page.age")
bench_page: Any = importlib.import_module("bench_page")
compare: Any = importlib.import_module("page.compare")
markdown: Any = importlib.import_module("page.markdown")
peers_page: Any = importlib.import_module("page.peers")
plots: Any = importlib.import_module("page.plots")
plan: Any = importlib.import_module("peers.plan")
readme: Any = importlib.import_module("page.readme")
results: Any = importlib.import_module("page.results")
stories_page: Any = importlib.import_module("page.stories")
text: Any = importlib.import_module("page.text")

HEAD = {
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "a CPU", "cores": 2, "memory_gb": 8, "kernel": "6"},
    "versions": {"commit": "abc", "jitney": "0.1.0"},
}


def figures(rps: float, p50_ms: float, **more: float) -> dict[str, float]:
    return {
        "rps": rps,
        "p50_ms": p50_ms,
        "p95_ms": p50_ms * 2,
        "p99_ms": p50_ms * 3,
        "memory_mb": 50.0,
        "answered": 1000,
        "refused": 0,
        "broken": 0,
        **more,
    }


def document(samples: dict[str, list[dict[str, float]]], point: str = "closed 64") -> dict[str, Any]:
    """A run with one load and one point; server → figures of its repetitions."""
    listed = [
        {
            "load": "noop",
            "repetition": repetition,
            "server": server,
            "cell": "wait=1",
            "point": point,
            "figures": found,
        }
        for server, of in samples.items()
        for repetition, found in enumerate(of, 1)
    ]
    servers = {
        name: {"title": name.title(), "version": "1.0", "state": "measured", "reason": "", "source": "https://x.test/"}
        for name in samples
    }
    method = {"repetitions": 3, "seconds": 5, "loads": ["noop"], "points": [point], "notes": ["a note of the run"]}
    return copy.deepcopy(
        {
            "kind": "peers",
            **HEAD,
            "generator": {"name": "wrk", "version": "4"},
            "method": method,
            "servers": servers,
            "tuning": [],
            "samples": listed,
            "problems": [],
        }
    )


def outcome(ours: list[dict[str, float]], theirs: list[dict[str, float]], point: str = "closed 64") -> dict[str, str]:
    (row,) = compare.rows_of(document({"jitney": ours, "mosec": theirs}, point))
    return {metric: verdict.outcome for metric, verdict in row.verdicts.items()}


ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks/results"


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    text = (ROOT / "README.md").read_text()
    assert bench_page.readme(results.read(RESULTS), text) == text, "run `make bench-page`"


def test_every_link_of_the_built_report_leads_to_a_file() -> None:
    for path, built in bench_page.reports(results.read(RESULTS)).items():
        built_beside = {found.name for found in bench_page.reports(results.Sources())}
        links = [
            target.split("#")[0]
            for target in re.findall(r"\]\(([^)]+)\)|href=\"([^\"]+)\"", built)
            for target in target
        ]
        assert [link for link in links if link and link not in built_beside and not (path.parent / link).exists()] == []


def test_every_file_of_results_is_used() -> None:
    """A file is shown on the page or named in the docs; all others are only in the history."""
    sources = results.read(RESULTS)
    rows = [*sources.targets, *sources.scale_targets]
    scenarios = [*sources.scenarios.values(), *sources.scale_scenarios.values()]
    runs = [sources.peers, *sources.stories, *scenarios, *(row.run for row in rows)]
    shown = {run.name for run in runs if run}
    texts = [markdown.page(sources), *(page.read_text() for page in (ROOT / "docs").rglob("*.md"))]
    named = {path.name for path in RESULTS.glob("*.json") if any(path.stem in text for text in texts)}
    assert {path.name for path in RESULTS.glob("*.json")} - shown - named == set()


def test_each_figure_names_the_commit_that_it_was_measured_of() -> None:
    sources = results.read(RESULTS)
    assert sources.peers and sources.targets
    figures = readme.readme_figures(sources)
    assert f"commit {sources.peers.document['versions']['commit']}" in figures
    for scenario, _ in readme.NOOP.values():
        assert f"commit {sources.scenarios[scenario].document['versions']['commit']} |" in figures
    shown = markdown.page(sources)
    rows = {target.row["target"]: target.run for target in sources.targets}
    for target, run in rows.items():
        (line,) = [line for line in shown.splitlines() if line.startswith(f"| {target} |")]
        assert f"commit {run.document['versions']['commit']}" in line
    assert text.commit({"versions": {"jitney": "0.1.0"}}) == "jitney 0.1.0"


def test_the_report_says_that_figures_are_older_than_the_scheduler(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@x.test", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def change(name: str) -> str:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        git("add", "--all")
        git("commit", "--quiet", "--message", name)
        return git("rev-parse", "--short=12", "HEAD")

    git("init", "--quiet")
    measured = change("crates/core/src/a.rs")
    change("README.md")
    assert age.age({"versions": {"commit": measured}}, tmp_path) == ""
    age.commits_since.cache_clear()
    change("crates/core/src/b.rs")
    assert age.age({"versions": {"commit": measured}}, tmp_path) == ", crates/core/src has 1 newer commit"
    change("crates/core/src/c.rs")
    age.commits_since.cache_clear()
    assert age.age({"versions": {"commit": f"{measured}-dirty"}}, tmp_path) == ", crates/core/src has 2 newer commits"
    assert age.age({"versions": {"commit": "0123456789ab"}}, tmp_path) == ", age unknown"


def test_the_readme_says_how_many_targets_are_not_reached_and_how_many_rows_are_lost() -> None:
    peers_run = document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3})
    failing = bench("1", 1.0, 3, ("jitney",))
    failing["targets"][0]["verdict"] = "FAIL"
    found = results.Sources(
        peers=results.Found("p.json", peers_run), targets=results.targets([results.Found("a.json", failing)])
    )
    shown = readme.readme_figures(found)
    assert "loses 2 of 3 comparisons" in shown
    assert "1 of the project's own 1 targets are not reached" in shown


def test_answers_in_parts_are_another_table_with_the_figures_of_parts() -> None:
    ours, theirs = ([figures(9, 5, parts_s=parts, first_p50_ms=2, gap_p99_ms=3)] * 3 for parts in (9000, 400))
    found = document({"jitney": ours, "mosec": theirs})
    found["method"]["loads"] = ["stream-noop"]
    for sample in found["samples"]:
        sample["load"] = "stream-noop"
    whole = document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3})
    sources = results.Sources(peers=results.Found("p.json", whole), streams=results.Found("s.json", found))
    shown = markdown.page(sources)
    (before, after) = shown.split("## Other servers, answers in parts")
    assert "parts/s" not in before and "| row | parts/s | p50 of the first part | p50 |" in after
    assert "p99 of the gaps, ms" in after
    assert "won · 22.5 of Mosec" in after and "64 parts of 4 letters" in after
    assert "parts/s, 64 users" in plots.report(sources)
    for sample in found["samples"]:
        sample["figures"]["parts_s"] *= sample["server"] == "jitney"
    assert "won · ∞ of Mosec" in markdown.page(sources)
    assert "Not measured yet: `make bench-peers LOADS=stream`" in markdown.page(results.Sources())


def test_better_beyond_the_spread_is_won_and_worse_is_lost() -> None:
    ours = [figures(100, 5), figures(110, 6), figures(120, 7)]
    theirs = [figures(50, 1), figures(60, 2), figures(99, 3)]
    assert outcome(ours, theirs) == {"rps": "won", "p50_ms": "lost", "p95_ms": "lost"}


def test_spreads_that_touch_are_even_whatever_the_medians_say() -> None:
    ours = [figures(100, 5), figures(110, 6), figures(120, 7)]
    theirs = [figures(120, 5), figures(130, 5), figures(140, 5)]
    assert outcome(ours, theirs) == {"rps": "even", "p50_ms": "even", "p95_ms": "even"}


def test_fewer_than_three_repetitions_are_not_judged() -> None:
    for ours, theirs in ((1, 1), (2, 2), (2, 3), (3, 2)):
        assert set(outcome([figures(100, 5)] * ours, [figures(50, 1)] * theirs).values()) == {"not judged"}
    assert outcome([figures(100, 5, refused=500)] * 2, [figures(50, 1)] * 3)["rps"] == "not judged"


def test_two_repetitions_of_the_same_server_would_be_judged_apart_once_in_three_times() -> None:
    """Why it takes three: see docs/design/0012-benchmarks.md."""

    def apart(size: int) -> float:
        ranks = range(2 * size)
        sides = [set(side) for side in itertools.combinations(ranks, size)]
        missed = [side for side in sides if max(side) < size or min(side) >= size]
        return len(missed) / len(sides)

    assert (apart(2), apart(3)) == (1 / 3, 1 / 10)
    assert apart(compare.LEAST_REPETITIONS) <= 1 / 10


def test_the_page_says_how_many_repetitions_there_were() -> None:
    found = document({"jitney": [figures(100, 5)] * 2, "mosec": [figures(50, 1)]})
    assert "1 to 2 interleaved repetitions (3 were planned) of 5 s" in page_of(found)
    found = document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3})
    assert ": 3 interleaved repetitions of 5 s" in page_of(found)


def test_every_load_every_point_and_every_story_has_a_name_on_the_page() -> None:
    assert set(peers_page.POINT_TITLES) == {*plan.POINTS, *plan.STREAM_POINTS, *plan.SAME}
    assert set(peers_page.LOAD_TITLES) == set(importlib.import_module("peers.loads").EVERY)
    told = importlib.import_module("stories.__main__")
    settings = importlib.import_module("stories.story").Settings(1.0, Path())
    every = {story.key: story.name for module in told.MODULES for story in module.stories(settings)}
    assert every == stories_page.STORIES


def test_a_server_that_refuses_wins_nothing_but_under_overload() -> None:
    ours, quick = [figures(100, 5)] * 3, [figures(50, 1, refused=500)] * 3
    assert outcome(ours, quick) == {}
    assert outcome(quick, ours) == {"rps": "lost", "p50_ms": "lost", "p95_ms": "lost"}, "jitney does not either"
    refusing = [figures(100, 5, refused=500)] * 3
    assert outcome(refusing, quick, "open 150%")["p50_ms"] == "lost"


def test_under_overload_latencies_are_compared_with_those_who_refuse_as_much() -> None:
    ours, quick = [figures(100, 5)] * 3, [figures(50, 1, refused=500)] * 3
    assert outcome(ours, quick, "open 150%") == {"rps": "won"}


def test_a_share_of_what_a_server_can_do_says_nothing_of_its_rate() -> None:
    for point in ("open 60%", *plan.SAME):
        assert set(outcome([figures(60, 5)] * 3, [figures(30, 9)] * 3, point)) == {"p50_ms", "p95_ms"}


def test_each_metric_is_compared_with_the_best_in_that_metric() -> None:
    (row,) = compare.rows_of(
        document(
            {
                "jitney": [figures(100, 5)] * 3,
                "mosec": [figures(90, 9)] * 3,
                "ray": [figures(10, 2)] * 3,
            }
        )
    )
    assert {metric: verdict.best for metric, verdict in row.verdicts.items()} == {
        "rps": "mosec",
        "p50_ms": "ray",
        "p95_ms": "ray",
    }


def page_of(found: dict[str, Any]) -> str:
    return markdown.page(results.Sources(peers=results.Found("peers-x.json", found)))


def test_the_page_shows_losses_reasons_and_what_was_left_out() -> None:
    found = document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3})
    found["servers"]["ray"] = {
        "title": "Ray Serve",
        "version": "",
        "state": "not installed",
        "reason": "no wheel for this Python",
        "source": "https://x.test/",
    }
    found["problems"].append({"load": "bytes", "server": "mosec", "reason": "413 too large"})
    text = page_of(found)
    assert "**1 won, 2 lost**" in text
    assert "**Lost** in p50, ms, p95, ms" in text
    assert "| Ray Serve | none | not installed | no wheel for this Python |" in text
    assert "Mosec, load `bytes`: not measured: 413 too large" in text
    assert "- a note of the run" in text
    assert "[peers-x.json](results/peers-x.json)" in text


def test_every_sample_moves_the_page() -> None:
    found = document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3})
    before = page_of(found)
    for sample in found["samples"]:
        changed = copy.deepcopy(found)
        at = found["samples"].index(sample)
        changed["samples"][at]["figures"]["rps"] = 777.0
        assert page_of(changed) != before


def bench(date: str, measured: float | None, repetitions: int, servers: tuple[str, ...]) -> dict[str, Any]:
    verdict = "not measured" if measured is None else "pass"
    return {
        **HEAD,
        "date": date,
        "method": {"repetitions": repetitions, "seconds": 5},
        "not_measured": [],
        "targets": [{"target": "RPS", "bound": ">= 1", "measured": measured, "verdict": verdict}],
        "medians": {"no-op, 64 connections": {server: {"rps": measured or 0.0} for server in servers}},
    }


def test_a_target_comes_from_the_newest_run_that_measured_it_and_repeated() -> None:
    runs = [
        results.Found("a", bench("1", 1.0, 3, ("jitney", "hyper"))),
        results.Found("b", bench("2", 2.0, 3, ("jitney",))),
        results.Found("c", bench("3", 3.0, 1, ("jitney", "hyper"))),
        results.Found("d", bench("4", None, 3, ("jitney",))),
    ]
    (target,) = results.targets(runs)
    assert (target.run.name, target.row["measured"]) == ("b", 2.0)
    (shown,) = results.scenarios(runs).values()
    assert shown.name == "a", "the most servers side by side, and repeated; of those the newest"


def beside(*samples: tuple[float, float]) -> dict[str, Any]:
    """A run of `make bench` with (ours, theirs) of each repetition."""
    found = bench("1", 1.0, len(samples), ())
    name = "1 MB raw bodies, 8 connections"
    ours, theirs = zip(*samples, strict=True)
    rates = {"jitney": ours, "fastapi": theirs, "hyper": [9000.0] * len(samples)}
    found["samples"] = {name: {server: [{"rps": rate} for rate in of] for server, of in rates.items()}}
    found["medians"] = {name: {server: {"rps": statistics.median(of)} for server, of in rates.items()}}
    found["targets"][0] |= {"measured": 1.0, "verdict": "FAIL"}
    return found


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([(1, 4), (2, 5), (3, 6)], "2 (1 to 3), and 5 (4 to 6) of FastAPI, batched by hand, **lost**"),
        ([(1, 3), (2, 5), (3, 6)], "2 (1 to 3), and 5 (3 to 6) of FastAPI, batched by hand, even"),
        ([(1, 4), (2, 5)], "1.5 (1 to 2), and 4.5 (4 to 5) of FastAPI, batched by hand, not judged"),
    ],
)
def test_who_is_ahead_of_jitney_in_a_table_of_make_bench_is_named(
    samples: list[tuple[float, float]], said: str
) -> None:
    runs = [results.Found("a.json", beside(*samples))]
    sources = results.Sources(targets=results.targets(runs), scenarios=results.scenarios(runs))
    shown = markdown.page(sources)
    assert f"- 1 MB raw bodies, 8 connections: requests/s: {said}\n" in shown
    assert f"**Behind:** requests/s: {said}.\n" in shown
    assert "- RPS: 1, target >= 1\n" in shown
    drawn = plots.report(sources)
    assert '<span class="lost">behind: ' in drawn
    assert "1 targets are not reached: RPS 1, target &gt;= 1" in drawn


def test_nobody_is_behind_a_server_without_a_model() -> None:
    runs = [results.Found("a.json", beside((2, 1), (3, 1), (4, 1)))]
    shown = markdown.page(results.Sources(targets=results.targets(runs), scenarios=results.scenarios(runs)))
    assert "ehind" not in shown


def test_a_verdict_of_one_repetition_is_called_that() -> None:
    runs = [results.Found("a", bench("1", 2.0, 1, ("jitney",)))]
    shown = markdown.page(results.Sources(targets=results.targets(runs)))
    assert "| RPS | >= 1 | 2 | pass, of one repetition |" in shown
    assert "1 are reached, 0 are not, and 0 were not measured (1 with one repetition only)." in shown


def test_a_story_says_what_it_rests_on_and_which_others_are_missing() -> None:
    def told(**samples: int) -> str:
        one = {
            "key": "4",
            "name": "40 users",
            "rows": [{"variant": name, "metrics": {"rps": 1.0}} for name in samples],
            "samples": {name: [{"rps": 1.0}] * count for name, count in samples.items()},
            "targets": [{"target": "rps", "bound": ">= 1", "measured": 1.0, "verdict": "pass"}],
        }
        nothing: dict[str, Any] = {"key": "3", "name": "replicas", "rows": []}
        found: dict[str, Any] = {"kind": "stories", **HEAD, "stories": [one, nothing]}
        return markdown.page(results.Sources(stories=[results.Found("s.json", found)]))

    assert "Medians of 3 repetitions." in told(ours=3, theirs=3)
    assert "| rps | >= 1 | 1 | pass |" in told(ours=3, theirs=3)
    assert "Medians of 1 to 3 repetitions." in told(ours=3, theirs=1)
    assert "Measured once: no medians" in told(ours=1)
    for shown in (told(ours=1), told(ours=3, theirs=1)):
        assert "| rps | >= 1 | 1 | pass, of one repetition |" in shown
        assert "it can only lose" in shown
        assert "Not measured: text to image, 8 users; text to image with a model that computes, 8 users; " in shown
        assert "replicas; the same with a model that computes; 250 requests" in shown, (
            "a story without a figure is not measured"
        )


def test_each_story_is_shown_from_the_newest_run_that_repeated_it() -> None:
    def run(name: str, **repetitions: int) -> Any:
        told: list[dict[str, Any]] = [
            {"key": key, "rows": [{}] if count else [], "repetitions": count} for key, count in repetitions.items()
        ]
        return results.Found(name, {"kind": "stories", **HEAD, "date": name, "stories": told})

    shown = results.stories([run("1", a=3, b=1, c=2), run("2", a=1, b=2, c=0), run("3", c=3, d=1)])
    assert [(one.name, [story["key"] for story in one.document["stories"]]) for one in shown] == [
        ("3", ["c", "d"]),
        ("2", ["b"]),
        ("1", ["a"]),
    ]


def test_stories_are_shown_with_theirs_ours_and_ratio() -> None:
    story = {
        "name": "text to image",
        "what": "8 users",
        "scaled": "time by 20",
        "theirs": {"label": "as its author measured it", "metrics": {"images_s": 1.1}},
        "rows": [
            {
                "variant": "batch 8",
                "side": "baseline",
                "metrics": {"images_s": 1.0},
                "spread": {"images_s": [0.9, 1.2]},
            },
            {"variant": "defaults", "side": "jitney", "metrics": {"images_s": 1.5, "p50_ms": 2.0}},
        ],
        "compared": ["defaults", "batch 8"],
        "ratio": {"images_s": 1.5},
        "missing": "no GPU here",
        "plot": {
            "x": "users",
            "y": "images/s",
            "series": [{"name": "b8", "side": "baseline", "points": [[1, 2], [8, 4]]}],
        },
        "targets": [{"target": "images/s", "bound": ">= 1", "measured": 1.5, "verdict": "FAIL"}],
    }
    found = results.Found("s.json", {"kind": "stories", **HEAD, "method": {"notes": ["n"]}, "stories": [story]})
    text = markdown.page(results.Sources(stories=[found]))
    assert "| *as its author measured it* | 1.1 |  |  |" in text
    assert "| batch 8 | 1 (0.9 to 1.2) |  |  |" in text
    assert "| **defaults** | 1.5 | 2 |  |" in text
    assert "| images/s | >= 1 | 1.5 | **FAIL** |" in text
    assert "Scaled or simulated: time by 20" in text
    assert "| ratio, defaults / batch 8 | 1.5 |  |  |" in text
    assert "Left out: no GPU here" in text
    drawn = plots.report(results.Sources(stories=[found]))
    assert "text to image" in drawn
    assert 'points="125.0,140.0 580.0,20.0"' in drawn


def test_plots_need_no_network_and_no_script() -> None:
    found = results.Found("x", document({"jitney": [figures(100, 5)] * 3, "mosec": [figures(50, 1)] * 3}))
    text = plots.report(results.Sources(peers=found))
    assert "<svg" in text
    assert "<script" not in text
    assert "src=" not in text
    assert '<span class="lost">lost</span>' in text


@pytest.mark.parametrize(
    ("value", "shown"), [(37_812.0, "37,800"), (999.6, "1000"), (123.4, "123"), (0.2163, "0.216"), (0.0, "0")]
)
def test_figures_have_three_digits(value: float, shown: str) -> None:
    assert text.number(value) == shown
