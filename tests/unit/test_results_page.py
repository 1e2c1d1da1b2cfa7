"""The page says what the results say: no more, and no less."""

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
bench_page: Any = importlib.import_module("bench_page")
compare: Any = importlib.import_module("page.compare")
markdown: Any = importlib.import_module("page.markdown")
plots: Any = importlib.import_module("page.plots")
results: Any = importlib.import_module("page.results")
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


def test_the_page_and_the_readme_agree_with_the_results() -> None:
    for path, text in bench_page.rendered().items():
        assert path.read_text() == text, f"{path.name} is not what the results say: make bench-page"


def test_better_beyond_the_spread_is_won_and_worse_is_lost() -> None:
    ours = [figures(100, 5), figures(110, 6), figures(120, 7)]
    theirs = [figures(50, 1), figures(60, 2), figures(99, 3)]
    assert outcome(ours, theirs) == {"rps": "won", "p50_ms": "lost", "p95_ms": "lost"}


def test_spreads_that_touch_are_even_whatever_the_medians_say() -> None:
    ours = [figures(100, 5), figures(110, 6), figures(120, 7)]
    theirs = [figures(120, 5), figures(130, 5), figures(140, 5)]
    assert outcome(ours, theirs) == {"rps": "even", "p50_ms": "even", "p95_ms": "even"}


def test_one_repetition_has_no_spread_and_is_not_judged() -> None:
    assert set(outcome([figures(100, 5)], [figures(50, 1)]).values()) == {"not judged"}


def test_a_server_that_refuses_wins_nothing_but_under_overload() -> None:
    ours, quick = [figures(100, 5)] * 3, [figures(50, 1, refused=500)] * 3
    assert outcome(ours, quick) == {}
    assert outcome(quick, ours) == {"rps": "lost", "p50_ms": "lost", "p95_ms": "lost"}, "nor do we"
    refusing = [figures(100, 5, refused=500)] * 3
    assert outcome(refusing, quick, "open 150%")["p50_ms"] == "lost"


def test_under_overload_latencies_are_compared_with_those_who_refuse_as_much() -> None:
    ours, quick = [figures(100, 5)] * 3, [figures(50, 1, refused=500)] * 3
    assert outcome(ours, quick, "open 150%") == {"rps": "won"}


def test_a_share_of_what_a_server_can_do_says_nothing_of_its_rate() -> None:
    assert set(outcome([figures(60, 5)] * 3, [figures(30, 9)] * 3, "open 60%")) == {"p50_ms", "p95_ms"}


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
    text = markdown.page(results.Sources(stories=found))
    assert "| *as its author measured it* | 1.1 |  |  |" in text
    assert "| batch 8 | 1 (0.9 to 1.2) |  |  |" in text
    assert "| **defaults** | 1.5 | 2 |  |" in text
    assert "| images/s | >= 1 | 1.5 | **FAIL** |" in text
    assert "Scaled or simulated: time by 20" in text
    assert "| ratio, defaults / batch 8 | 1.5 |  |  |" in text
    assert "Left out: no GPU here" in text
    drawn = plots.report(results.Sources(stories=found))
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
