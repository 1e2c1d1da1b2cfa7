"""What is said of measurements: noise and differences, knees and limits, and the page."""

import json
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jitney.cli.main import main
from jitney.errors import ConfigError
from jitney_bench import sweep
from jitney_bench.measure import Side, Subject, error_share
from jitney_bench.options import Closed, Open
from jitney_bench.reports import compare, document, page, terminal
from jitney_bench.requests.protocols import Requests
from jitney_bench.server.address import Address
from jitney_bench.server.site import Site


def run_of(rate: float = 1000.0, ms: float = 10.0, **changes: Any) -> dict[str, Any]:
    """A run as the load generator writes it."""
    times = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "p99_9", "max"), ms)
    point = {
        "from_s": 0.0, "to_s": 1.0, "due": 10, "answered": 10, "refused": 0, "failed": 0, "rate_per_s": rate,
        "p50_ms": ms, "p95_ms": ms, "p99_ms": ms, "max_ms": ms, "queue_mean_ms": 1.0, "model_mean_ms": 2.0,
        "batch_mean_items": 3.0, "parts_per_s": 0.0, "client_cpu": 0.1, "client_waited": 0.0,
    }  # fmt: skip
    client = {
        "cpu": 0.1, "waited": 0.0, "connections_opened": 4, "late_ms": None, "late_share": 0.0, "is_limit": False,
        "why": None,
    }  # fmt: skip
    server = {"model_busy": 0.2, "replicas": 1.0, "cpu": 0.3, "front_cpu": 0.1, "resident_mb": 80.0, "gone": None}
    base: dict[str, Any] = {
        "started": "2026-11-21T22:00:00Z", "window_s": 1.0,
        "requests": {"due": 10, "answered": 10, "refused": 0, "failed": 0}, "items_answered": 10, "items_failed": 0,
        "outcomes": [{"status": 200, "reason": "ok", "kind": "answered", "requests": 10}],
        "rate_per_s": rate, "items_per_s": rate, "latency_ms": times, "refused_latency_ms": None,
        "latency_curve": [[0.0, ms / 2], [0.5, ms], [1.0, ms]], "latency_histogram_us": "",
        "server_ms": {"queue": times, "batch": times, "model": times, "first_part": None}, "batch_sizes": {"3": 10},
        "closed_by": {"full": 3}, "parts": None, "series": [point], "client": client, "server": server,
    }  # fmt: skip
    for name, value in changes.items():
        base[name] = base[name] | value if isinstance(value, dict) else value
    return base


def in_parts(rate: float = 1000.0, ms: float = 10.0) -> dict[str, Any]:
    """A run whose answers came in parts."""
    times = run_of(rate, ms)["latency_ms"]
    curve = [[0.0, ms / 2], [0.5, ms], [1.0, ms]]
    parts = {
        "count": 640, "rate_per_s": 64 * rate, "tokens_per_s": 70 * rate, "first_ms": times, "gap_ms": times,
        "first_curve": curve, "gap_curve": curve, "first_histogram_us": "", "gap_histogram_us": "",
    }  # fmt: skip
    run: dict[str, Any] = run_of(rate, ms) | {"parts": parts}
    times = {f"{what}_{p}_ms": ms for what in ("first", "gap") for p in ("p50", "p95", "p99")}
    run["series"] = [run["series"][0] | {"parts_per_s": 64 * rate} | times]
    return run


def document_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    stream = "native" if runs[0]["parts"] else None
    plan = {"url": "http://127.0.0.1:8000/m", "load": Closed().to_dict(), "threads": 1, "stream": stream}
    return document.document("load", plan, None) | {"summary": document.summary(runs), "runs": runs}


def noisy(rate: float, ms: float, runs: int, seed: int, spread: float = 0.05) -> dict[str, Any]:
    """Runs that differ as those of a busy machine do."""
    draw = random.Random(seed)
    return document_of(
        [run_of(rate * draw.lognormvariate(0, spread), ms * draw.lognormvariate(0, spread)) for _ in range(runs)]
    )


def verdicts(left: dict[str, Any], right: dict[str, Any]) -> dict[str, bool]:
    return {one.name: one.is_noise for one in compare.differences(left, right)}


def test_the_same_measured_twice_is_noise() -> None:
    told = [verdicts(noisy(1000, 10, 5, seed), noisy(1000, 10, 5, seed + 1000)) for seed in range(200)]
    claimed = sum(not is_noise for one in told for is_noise in one.values())
    # One in a hundred is what 99 % means; p50, p95 and p99 of these runs are one figure.
    assert claimed <= 0.03 * 200 * len(told[0])


def test_twice_as_fast_is_a_difference() -> None:
    for seed in range(20):
        assert not any(verdicts(noisy(1000, 10, 3, seed), noisy(2000, 5, 3, seed + 1000)).values())


def test_a_single_run_is_judged_by_its_intervals_and_only_large_differences_are_claimed() -> None:
    def about(rate: float) -> dict[str, Any]:
        draw = random.Random(1)
        return single([rate * draw.uniform(0.99, 1.01) for _ in range(20)])

    assert verdicts(about(1000), about(1070))["rate_per_s"]
    assert not verdicts(about(1000), about(1200))["rate_per_s"]
    assert any("--repeat" in line for line in compare.comparison_lines(about(1), about(2), ("a", "b")))


def test_intervals_of_different_lengths_have_different_percentiles() -> None:
    left, right = noisy(1000, 10, runs=1, seed=1), noisy(1000, 10, runs=1, seed=2)
    left["plan"]["interval_s"], right["plan"]["interval_s"] = 0.1, 1.0
    told = {one.name: one.verdict for one in compare.differences(left, right)}
    assert told["p99_ms"] == "not judged: the intervals are not of one length"
    assert "not judged" not in told["rate_per_s"]


def test_what_is_left_of_a_window_is_no_interval() -> None:
    made = noisy(1000, 10, runs=1, seed=1)
    made["plan"]["interval_s"] = 1.0
    made["runs"][0]["series"].append(made["runs"][0]["series"][0] | {"to_s": 0.01, "rate_per_s": 0.0})
    assert [len(one.left) for one in compare.differences(made, made)] == [1] * len(document.SUMMARY)


def test_counters_that_began_anew_say_nothing() -> None:
    busy, full = "jitney_model_duration_seconds_sum", 'jitney_batches_total{reason="full"}'
    before = Side(0.0, {busy: 90.0, full: 950.0, "jitney_ready_replicas": 1.0}, None)
    after = Side(10.0, {busy: 5.0, full: 50.0, "jitney_ready_replicas": 1.0}, None)
    assert after.closed_by(before) is None and after.since(before)["model_busy"] is None
    assert before.closed_by(after) == {"full": 900}


def test_requests_that_waited_for_a_connection_are_told() -> None:
    said = "\n".join(terminal.run_lines(run_of(client={"held_share": 0.2}), 2, "open"))
    assert "20% of the requests were due while all connections were busy" in said


def test_too_few_samples_say_nothing() -> None:
    (rate, *_) = compare.differences(document_of([run_of(1)]), document_of([run_of(100)]))
    assert rate.is_noise
    assert rate.verdict == "too little was measured to say"


def test_better_and_worse_know_which_way_is_up() -> None:
    found = {one.name: one.verdict for one in compare.differences(noisy(1000, 10, 5, 1), noisy(2000, 20, 5, 2))}
    assert found["rate_per_s"].startswith("better")
    assert found["p99_ms"].startswith("worse")


def single(rates: list[float], ms: float = 10.0) -> dict[str, Any]:
    """One run with such intervals; those without an answer have no latency."""
    run = run_of(sum(rates) / len(rates), ms)
    point = run["series"][0]
    silent = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "max_ms"))
    run["series"] = [point | {"rate_per_s": rate} | ({} if rate else silent) for rate in rates]
    return document_of([run])


def test_a_server_that_stalls_answers_fewer() -> None:
    steady, stalled = single([1000.0, 1001.0] * 10), single([1000.0, 1001.0] * 5 + [0.0] * 10)
    (rate, *_) = compare.differences(steady, stalled)
    assert rate.ratio == pytest.approx(0.5)
    assert rate.verdict.startswith("worse")
    told = "\n".join(compare.comparison_lines(steady, stalled, ("a", "b")))
    assert "in b 10 of 20 intervals are without an answer" in told
    assert "0/s to 1,001/s" in told


def test_a_run_without_answers_counts() -> None:
    runs = [run_of(1000.0), run_of(1001.0), run_of(0.0, latency_ms=None)]
    (rate, p50, *_) = compare.differences(noisy(1000, 10, 3, 1, spread=0.001), document_of(runs))
    assert list(rate.right) == [1000.0, 1001.0, 0.0]
    assert rate.ratio == pytest.approx(2 / 3, rel=0.01)
    assert rate.verdict.startswith("noise; --repeat ")  # one of three may be chance, and the table shows it
    assert list(p50.right) == [10.0, 10.0]


def test_no_answers_at_all_are_worse_than_any() -> None:
    some, none = noisy(1000, 10, 3, 1), document_of([run_of(0.0, latency_ms=None)] * 3)

    def rate(left: dict[str, Any], right: dict[str, Any]) -> compare.Difference:
        compare.comparison_lines(left, right, ("a", "b"))
        return compare.differences(left, right)[0]

    assert (rate(some, none).verdict, rate(some, none).ratio) == ("worse: nothing was answered", 0.0)
    assert rate(none, some).verdict == "better: nothing was answered before"
    assert not rate(none, some).is_noise
    assert rate(none, none).verdict == "nothing was answered"
    assert rate(none, none).is_noise


@pytest.mark.parametrize(
    ("refused", "is_judged"),
    [(0, True), (10, True), (11, False), (6000, False)],
)
def test_whoever_refuses_is_not_called_faster(refused: int, is_judged: bool) -> None:
    before, after = noisy(1000, 10, 5, 1), noisy(1000, 2, 5, 2)
    for side, count in ((before, 0), (after, refused)):
        for run in side["runs"]:
            run["requests"] = {"due": 10000, "answered": 10000 - count, "refused": count, "failed": 0}
    for left, right, word in ((before, after, "better"), (after, before, "worse")):
        times = compare.differences(left, right)[1:]
        assert [one.verdict.startswith(word) for one in times] == [is_judged] * 3
        assert [one.is_noise for one in times] == [not is_judged] * 3
        told = "\n".join(compare.comparison_lines(left, right, ("a", "b")))
        assert f"{refused / 10000:.2%}" in told
        assert ("warning: " in told) is not is_judged


def test_what_else_differs_is_told() -> None:
    left, right = noisy(1, 1, 3, 1), noisy(1, 1, 3, 2)
    right["plan"]["threads"] = 2
    right["runs"][0]["client"]["is_limit"] = True
    told = compare.comparison_lines(left, right, ("a.json", "b.json"))
    assert "differs: threads is 1 and 2" in told
    assert "warning: in b.json the client was the limit" in told


def test_options_that_differ_are_listed_by_the_comparison_and_by_its_page() -> None:
    made = comparison()
    for side, size in zip(made["sides"], (16, 1), strict=True):
        side["plan"]["options"] = {"max_batch_size": size, "policy": "auto"}
    left, right = made["sides"]
    lines = compare.comparison_lines(left, right, made["names"])
    line = "differs: options.max_batch_size is 16 and 1"
    assert line in lines
    assert not any("options.policy" in one for one in lines)
    _, _, measured = page.render(made).partition("How it was measured")
    assert line in measured.split("</pre>")[0]


def test_a_file_without_options_is_named_and_its_options_are_not_compared() -> None:
    left, right = noisy(100, 10, 3, 1), noisy(100, 10, 3, 2)
    right["plan"]["options"] = {"max_batch_size": 16}
    lines = compare.comparison_lines(left, right, ("a.json", "b.json"))
    assert "a.json does not record the options of a deployment, so they cannot be compared" in lines
    assert not any("b.json does not" in line or "max_batch_size" in line for line in lines)


def test_the_options_of_a_deployment_are_asked_for_where_there_is_one() -> None:
    class Served(Site):
        def config(self, model: str) -> dict[str, Any]:
            return {"m": {"max_batch_size": 16}}.get(model, {})

    address, requests = Address("127.0.0.1", 1), Requests("/m", [])
    site = Served(address, {})
    assert Subject(address, requests, site, "m").options() == {"max_batch_size": 16}
    assert Subject(address, requests, site, "other").options() is None
    assert Subject(address, requests, site).options() is None
    assert Subject(address, requests).options() is None


def runs_at(*rates: float) -> dict[str, Any]:
    return document_of([run_of(rate) for rate in rates])


def test_noise_says_how_many_runs_may_show_a_difference() -> None:
    before, after = runs_at(900, 1000, 1100), runs_at(1000, 1100, 1200)
    (rate, *_) = compare.differences(before, after)
    runs = rate.runs_needed
    assert runs is not None and 3 < runs <= compare.MOST_RUNS
    assert rate.verdict == f"noise; --repeat {runs} on both sides may show a difference"
    # As many runs with that spread do show it.
    spread = [(-1, 0, 1)[place % 3] * 100 * 0.9 for place in range(runs + 2)]
    (rate, *_) = compare.differences(runs_at(*(1000 + one for one in spread)), runs_at(*(1100 + one for one in spread)))
    assert rate.verdict.startswith("better")


def test_noise_says_that_too_many_runs_would_be_needed() -> None:
    (rate, *_) = compare.differences(runs_at(500, 1000, 1500), runs_at(510, 1010, 1510))
    assert rate.verdict == f"noise; more than {compare.MOST_RUNS} runs would be needed"


def test_no_further_runs_are_proposed_where_the_figures_agree() -> None:
    (rate, *_) = compare.differences(runs_at(1000, 1001, 1002), runs_at(1001, 1002, 1003))
    assert rate.verdict == "noise"
    assert rate.runs_needed is None


@pytest.mark.parametrize(
    ("answered", "note"),
    [
        (69, "  (p99 and p99.9 are the maximum of only 69 requests)"),
        (999, "  (p99.9 is the maximum of only 999 requests)"),
        (1000, ""),
    ],
)
def test_quantiles_of_few_requests_are_marked_as_their_maximum(answered: int, note: str) -> None:
    run = run_of(requests={"due": answered, "answered": answered})
    together = {"latency_ms": run["latency_ms"]}
    for lines in (terminal.run_lines(run, 2, "closed"), terminal.together_lines([run], together)):
        (latency,) = (line for line in lines if line.startswith("latency"))
        assert latency.endswith(f"max 10.0 ms{note}")


@pytest.mark.parametrize(
    ("name", "here", "there"),
    [
        ("load", Closed(8).to_dict(), Closed(16).to_dict()),
        ("load", Open(100.0).to_dict(), Open(250.0).to_dict()),
        ("load", Closed(8).to_dict(), Open(100.0).to_dict()),
        ("items_per_request", 1, 16),
    ],
)
def test_of_different_loads_nothing_is_judged(name: str, here: object, there: object) -> None:
    left, right = noisy(100, 10, 3, 1), noisy(250, 20, 3, 2)
    left["plan"][name], right["plan"][name] = here, there
    assert {one.verdict for one in compare.differences(left, right)} == {"not judged: the loads differ"}
    told = compare.comparison_lines(left, right, ("a.json", "b.json"))
    assert not any(word in line for line in told for word in ("better: ", "worse: "))
    assert any(line.startswith("warning: the loads differ") for line in told)
    assert any(line.startswith(f"differs: {name}") for line in told)


def test_connections_that_may_be_opened_are_no_part_of_what_is_asked_for() -> None:
    left, right = noisy(100, 10, 3, 1), noisy(250, 10, 3, 2)
    left["plan"]["load"], right["plan"]["load"] = Open(9.0).to_dict(), Open(9.0, connections=5).to_dict()
    assert compare.differences(left, right)[0].verdict.startswith("better")


def test_files_that_are_no_measurement_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text, said in (
        ("a.json", "{}", "expected a file that jitney bench --json FILE has written"),
        ("b.json", "nonsense", "is not JSON"),
        ("b.json", "nonsense", "expected a file that jitney bench --json FILE has written"),
        ("c.json", '{"format": "jitney-bench", "version": 9}', "version 9"),
    ):
        (tmp_path / name).write_text(text)
        assert main(["bench", "--compare", str(tmp_path / name), str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert name in told and said in told
    with pytest.raises(ConfigError, match="a sweep cannot be compared"):
        compare.differences(noisy(1, 1, 3, 1) | {"kind": "sweep"}, noisy(1, 1, 3, 1))


def test_what_was_written_is_read_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document.write(str(tmp_path / "a.json"), noisy(1000, 10, 5, 1))
    document.write(str(tmp_path / "b.json"), noisy(3000, 10, 5, 2))
    assert main(["bench", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    told = capsys.readouterr().out
    assert re.search(r"rate .* better: [23]\.\d\d times", told)
    assert re.search(r"p50 .* noise", told)
    html = tmp_path / "c.html"
    assert main(["bench", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(html)]) == 0
    assert "better: " in html.read_text()
    capsys.readouterr()
    assert main(["bench", "--compare", "a.json", "b.json", "--json", "c.json"]) == 2
    assert "leave --json away" in capsys.readouterr().err


def points_of(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    """Points of a sweep whose users double."""
    return [
        {"label": f"{2**place} users", "load": Closed(2**place).to_dict(), "run": run_of(rate, ms)}
        for place, (rate, ms) in enumerate(pairs)
    ]


def test_users_double_and_rates_rise_evenly() -> None:
    assert [str(load) for load in sweep.loads(Closed(6), is_bounded=True)] == [
        "1 user",
        "2 users",
        "4 users",
        "6 users",
    ]
    assert len(list(sweep.loads(Closed(6), is_bounded=False))) == 11
    rates = [load.rate_per_s for load in sweep.loads(Open(80.0), is_bounded=True) if isinstance(load, Open)]
    assert rates == [10, 20, 30, 40, 50, 60, 70, 80]


def test_the_knee_is_where_most_is_had_for_the_wait() -> None:
    assert sweep.knee(points_of((100, 10), (200, 10), (390, 12), (400, 40), (400, 90))) == 2
    dead = points_of((0, 1))
    dead[0]["run"]["latency_ms"] = None
    assert sweep.knee(dead) is None


def test_a_sweep_ends_when_more_load_brings_nothing() -> None:
    assert not sweep.is_over(points_of((100, 1), (200, 1), (390, 1)))
    assert not sweep.is_over(points_of((200, 1), (390, 1), (395, 1)))
    assert sweep.is_over(points_of((390, 1), (395, 1), (392, 1)))
    refused = points_of((100, 1))
    refused[0]["run"]["requests"] |= {"answered": 4, "refused": 6}
    assert sweep.is_over(refused)


@pytest.mark.parametrize(
    ("changes", "who", "evidence"),
    [
        ({"client": {"is_limit": True, "why": "it was late"}}, "clients", "it was late"),
        ({"server": {"model_busy": 0.95}}, "model", "95% of the time; a request was in a batch of 3.0 items"),
        ({"server": {"cpu": 1.8, "front_cpu": 1.5}}, "front", "front 1.50"),
        ({"server": {"cpu": 1.8, "front_cpu": 0.1}}, "model", "worker processes"),
        ({"client": {"waited": 0.4}}, "unknown", "something else uses this machine"),
        ({}, "front", "the model computed only 20%"),
        ({"server": {"model_busy": None, "cpu": None}}, "unknown", "reports nothing about its model"),
    ],
)
def test_what_limits_is_said_with_its_evidence(changes: dict[str, Any], who: str, evidence: str) -> None:
    points = points_of((100, 1), (200, 1), (201, 1))
    points[2]["run"] = run_of(201, 1, **changes)
    found = sweep.limit(points, cores=2)
    assert found["who"] == who
    assert evidence in found["why"]
    assert found["why"].startswith("at 4 users")


def test_a_rate_that_still_grows_has_no_limit_yet() -> None:
    assert "sweep further" in sweep.limit(points_of((100, 1), (200, 1)), cores=2)["why"]


@pytest.mark.parametrize(
    ("loads", "rates", "who"),
    [
        ((Closed(32), Closed(33)), (3200, 3300), "unknown"),
        ((Closed(32), Closed(33)), (3200, 3201), "front"),
        ((Closed(32), Closed(64)), (3200, 3300), "front"),
        ((Closed(32), Closed(64)), (3200, 4000), "unknown"),
        ((Open(700.0), Open(800.0)), (700, 800), "unknown"),
        ((Open(700.0), Open(800.0)), (650, 651), "front"),
        ((Closed(1),), (100,), "unknown"),
    ],
)
def test_growth_is_measured_by_the_step_in_load(
    loads: tuple[Closed | Open, ...], rates: tuple[float, ...], who: str
) -> None:
    points = [
        {"label": str(load), "load": load.to_dict(), "run": run_of(rate)}
        for load, rate in zip(loads, rates, strict=True)
    ]
    assert sweep.limit(points, cores=2)["who"] == who


def test_one_load_shows_no_growth_but_what_is_full() -> None:
    (point,) = points_of((100, 1))
    assert "one load does not show" in sweep.limit([point], cores=2)["why"]
    point["run"] = run_of(100, 1, server={"model_busy": 0.95})
    assert sweep.limit([point], cores=2)["who"] == "model"


class Reader(HTMLParser):
    """Collects scripts, and whatever a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.stack: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            self.scripts.append("")
        if tag not in ("meta", "link"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack[-1:] == ["script"]:
            self.scripts[-1] += data


def read_page(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.stack == []
    return reader


def test_the_page_holds_all_that_was_measured_and_loads_nothing() -> None:
    made = noisy(1000, 10, 2, 1)
    made["plan"]["url"] = "http://x/<script>alert(1)</script>%%DATA%%"
    reader = read_page(page.render(made))
    assert reader.loaded == []
    assert len(reader.scripts) == 3
    assert json.loads(reader.scripts[0]) == json.loads(json.dumps(made))
    assert "Permission is hereby granted" in page.render(made)


def sweep_document() -> dict[str, Any]:
    points = points_of((100, 10), (200, 12), (201, 50))
    parts = {"points": points, "knee": 1, "limit": sweep.limit(points, 2)}
    return document.document("sweep", {"url": "http://x/m"}, None) | parts


def comparison() -> dict[str, Any]:
    sides = [noisy(1000, 10, 3, 1), noisy(1000, 10, 2, 2)]
    sides[1]["runs"][0]["latency_ms"] = None
    return document.document("compare", {"url": "a and b"}, None) | {"names": ["a", "b"], "sides": sides}


# As much of a browser as the page needs: it says which plots are drawn, with how many values.
BROWSER = """
const drawn = [];
const element = () => ({ append() {}, clientWidth: 500, firstChild: {}, lastChild: {}, set innerHTML(text) {} });
const find = (id) => (id === "data" ? { textContent: DATA } : element());
globalThis.document = { getElementById: find, createElement: element };
globalThis.uPlot = class { constructor(options, columns) {
  const lengths = columns.map((column) => column.length);
  if (new Set(lengths).size !== 1 || columns.length !== options.series.length) throw new Error("columns: " + lengths);
  drawn.push(options.axes[0].label + "/" + options.axes[1].label + "/" + lengths[0]);
} };
uPlot.paths = { bars: () => null };
uPlot.join = (tables) => tables[0].concat(...tables.slice(1).map(([, y]) => [y]));
process.on("exit", () => console.log(JSON.stringify(drawn)));
"""


@pytest.mark.parametrize(
    ("made", "plots"),
    [
        (
            document_of([run_of()]),
            ["percentile/ms/2", "s/ms/1", "s/requests/s/1", "s/ms/1", "s/share of a core/1", "items/requests/1",
             "reason/batches/1"],
        ),
        (
            document_of([in_parts()]),
            ["percentile/ms/2", "percentile/ms/2", "percentile/ms/2", "s/ms/1", "s/requests/s/1", "s/ms/1", "s/ms/1",
             "s/parts/s/1", "s/ms/1", "s/share of a core/1", "items/requests/1", "reason/batches/1"],
        ),
        (document_of([run_of(), run_of()]), None),
        (document_of([run_of() | dict.fromkeys(("latency_ms", "server_ms", "batch_sizes", "closed_by"))]), None),
        (comparison(), ["percentile/ms/2", "run/answers/s/5", "run/ms/5"]),
        (sweep_document(), ["answers/s/ms/3", "load/answers/s/3", "load/share/3"]),
    ],
)  # fmt: skip
def test_the_script_of_the_page_draws_the_plots(made: dict[str, Any], plots: list[str] | None) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    data, _, script = read_page(page.render(made)).scripts
    program = f"const DATA = {json.dumps(data)};{BROWSER}{script}"
    ran = subprocess.run([node, "-e", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert plots is None or json.loads(ran.stdout) == plots


def test_the_table_has_the_first_part_and_the_gaps() -> None:
    run = in_parts()
    lines = "\n".join(terminal.run_lines(run, 2, "closed"))
    assert "1,000.0 answers/s, 64,000.0 parts/s, 70,000.0 tokens/s" in lines
    assert re.search(r"first part +p50 10.0 ms", lines)
    assert re.search(r"between parts +p50 10.0 ms.*p99.9 is the maximum of only 640 parts", lines)
    run["parts"] |= {"tokens_per_s": None, "gap_ms": None, "first_ms": None}
    lines = "\n".join(terminal.run_lines(run, 2, "closed"))
    assert "tokens/s" not in lines and "between parts" not in lines
    assert re.search(r"first part +none was answered", lines)
    times = in_parts()["latency_ms"]
    together = terminal.together_lines(
        [in_parts(1000), in_parts(3000)], dict.fromkeys(("latency_ms", "first_ms", "gap_ms"), times)
    )
    assert "128,000.0 parts/s (64,000.0 to 192,000.0)" in together[0]
    assert [line.split("  ")[0] for line in together] == ["rate", "first part", "between parts", "latency"]


def test_a_sweep_of_streams_has_their_figures() -> None:
    points = [{"label": "1 user", "load": Closed(1).to_dict(), "run": in_parts()}]
    points.append(points[0] | {"run": run_of(requests={"due": 0, "answered": 0})})
    head, first, second, _ = terminal.sweep_lines({"points": points, "knee": 0, "limit": sweep.limit(points, 2)})
    assert "parts/s" in head and "gap p99" in head
    assert "64,000.0" in first and second.count(" - ") == 2
    assert "64,000 parts/s" in terminal.live_line(in_parts()["series"][0], 1.0)


def test_streams_are_compared_by_their_parts_too() -> None:
    left, right = (document_of([in_parts(rate) for rate in rates]) for rates in ((100, 101, 102), (200, 201, 202)))
    assert list(left["summary"]) == [*document.SUMMARY, *document.PARTS]
    found = {one.name: one.verdict for one in compare.differences(left, right)}
    assert set(found) == {*document.SUMMARY, *document.PARTS}
    assert found["parts_per_s"].startswith("better") and found["gap_p99_ms"].startswith("noise")
    assert any(line.startswith("gap p99 ") for line in compare.comparison_lines(left, right, ("a", "b")))
    few = [document_of([in_parts()]), document_of([in_parts()])]
    assert len(compare.differences(*few)) == len(found)
    whole = document_of([run_of(100)] * 3)
    assert {one.verdict for one in compare.differences(left, whole)} == {"not judged: the loads differ"}


def test_the_table_says_what_went_wrong() -> None:
    outcomes = [
        {"status": 429, "reason": "queue_full", "kind": "refused", "requests": 3},
        {"status": 0, "reason": "timeout", "kind": "failed", "requests": 2},
    ]
    requests = {"due": 5, "answered": 0, "refused": 3, "failed": 2}
    lines = "\n".join(terminal.run_lines(run_of(outcomes=outcomes, requests=requests, latency_ms=None), 2, "closed"))
    assert "3 refused, 2 failed" in lines
    assert "3 of 429 queue_full" in lines
    assert "2 of no answer, timeout" in lines
    assert "none was answered" in lines


def test_a_window_in_which_nothing_was_due_is_no_error_but_is_told() -> None:
    empty = run_of(requests=dict.fromkeys(("due", "answered", "refused", "failed"), 0), outcomes=[], latency_ms=None)
    assert error_share(empty) == 0
    assert terminal.run_lines(empty, 2, "closed")[0].endswith(
        "waited for earlier answers all the time; raise --duration"
    )
    assert terminal.run_lines(empty, 2, "open")[0].endswith("nothing was due in the window; raise --duration or --rate")
    assert error_share(run_of(requests={"refused": 3, "failed": 1, "answered": 6})) == 0.4


def test_a_server_that_is_gone_at_the_end_is_told() -> None:
    gone = run_of(server={"gone": "http://x does not answer", "model_busy": None}, closed_by=None)
    assert terminal.run_lines(gone, 2, "closed")[-1].endswith(
        "ended before the run did, and its counters are lost: http://x does not answer"
    )


def test_a_run_that_is_broken_off_says_what_there_is() -> None:
    (point,) = run_of()["series"]
    later = point | {"from_s": 1.0, "to_s": 2.0, "failed": 3}
    assert terminal.stopped_line([point, later], 10.0) == (
        "stopped after 2.0 of 10 s: 20 answered, 3 failed, 10.0 answers/s; recently p50 10.0 ms  p99 10.0 ms; "
        "nothing is written"
    )
    silent = later | {"answered": 0, "failed": 0, "p50_ms": None}
    assert "s: no answers, 0.0 answers/s; nothing" in terminal.stopped_line([silent], 10.0)


def test_a_client_that_was_the_limit_is_warned_of() -> None:
    limited = run_of(client={"is_limit": True, "why": "it was late"})
    assert (
        terminal.run_lines(limited, 2, "closed")[-1] == "warning: this measured the client, not the server: it was late"
    )
    assert "something else" in terminal.run_lines(run_of(client={"waited": 0.5}), 2, "closed")[-1]


def test_times_have_three_digits_that_matter() -> None:
    assert [terminal.ms(value) for value in (0.123, 1.5, 12.34, 123.4, 1234)] == [
        "0.12 ms",
        "1.50 ms",
        "12.3 ms",
        "123 ms",
        "1.23 s",
    ]


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    live = terminal.Live()
    live.show("hello")
    live.close()
    assert capsys.readouterr().err == ""
