"""Every query of the dashboard and every rule on a real Prometheus that scrapes a real server under load.

The values are compared with what the load generator has measured on its side.
"""

import json
import math
import re
import subprocess
import urllib.request
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monitoring.prometheus import QueryError, filled_in
from monitoring.queries import LATENCY
from monitoring.rules import Record, groups
from observation import LOAD_S, RATE, Seen, observed

ROOT = Path(__file__).resolve().parents[2]
BOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/jitney.json").read_text())
MAY_BE_EMPTY: dict[tuple[str, str], str] = {
    ("Speed of replicas", "{{deployment}}/{{replica}}"): "a speed is shown only of replicas that are unequal",
    ("Round trips to other machines", "{{deployment}}/{{replica}}"): "all replicas are on this machine",
    ("Bandwidth to other machines", "{{deployment}}/{{replica}}"): "all replicas are on this machine",
    ("Work done again", "{{deployment}} hedged"): "it takes a machine that falls silent",
    ("Work done again", "{{deployment}} {{why}}"): "the worker may have been killed between two batches",
    ("Traces", "{{end}}"): "no collector is configured",
    ("Held batches", "mean"): "in an overload no batch needs to wait for items",
    ("Held batches", "p99"): "in an overload no batch needs to wait for items",
}
"""Panels and legends without values in this load, and why."""


ATTEMPTS = 3
MOST_STALL_S = 0.5
MOST_PREDICT_S = 0.09
"""The model sleeps for 46 ms at most. What is above that is the machine."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, prometheus: str) -> Iterator[Seen]:
    """One observation. If the machine did not run its processes in time, it says nothing, and another one is made."""
    del prometheus  # it is installed, or the tests are skipped
    reasons: list[str] = []
    for _ in range(ATTEMPTS):
        with observed(tmp_path_factory.mktemp("observed")) as found:
            if found.stall_s < MOST_STALL_S and found.predict_s < MOST_PREDICT_S:
                yield found
                return
            reasons.append(f"paused for {found.stall_s:.1f} s, predict took {found.predict_s * 1000:.0f} ms")
    pytest.skip(f"this machine is too busy: {'; '.join(reasons)}")


def panels() -> Iterator[dict[str, Any]]:
    for panel in BOARD["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def query(title: str, legend: str = "__auto", kind: str = "") -> str:
    """The query of a panel."""
    found = [
        target["expr"]
        for panel in panels()
        if panel["title"] == title and panel["type"].startswith(kind)
        for target in panel["targets"]
        if target["legendFormat"] == legend
    ]
    assert len(found) == 1, f"{len(found)} queries of {title!r} are called {legend!r}"
    return found[0]


def of_the_load(seen: Seen, title: str, legend: str = "__auto", kind: str = "", deployment: str = "plain") -> float:
    """What a panel would show at the end of the load, if its window were the whole load."""
    expression = filled_in(query(title, legend, kind), deployment=deployment, __rate_interval=seen.window)
    return seen.prometheus.value(expression, seen.done)


def test_every_query_of_every_panel_has_values_and_none_of_them_is_nan(seen: Seen) -> None:
    problems: list[str] = []
    empty: set[tuple[str, str]] = set()
    for panel in panels():
        for target in panel["targets"]:
            place = (panel["title"], target["legendFormat"])
            try:
                # From before the load: a server without a request must not show NaN.
                found = seen.prometheus.range(filled_in(target["expr"]), seen.begin, seen.done)
            except QueryError as error:
                problems.append(f"{place}: {error}")
                continue
            numbers = [float(number) for series in found for _, number in series["values"]]
            problems += [f"{place}: {number}" for number in numbers if not math.isfinite(number)][:1]
            if not numbers:
                empty.add(place)
    assert problems == []
    assert empty - set(MAY_BE_EMPTY) == set(), "these show nothing, and are not on the list"


def test_variables_and_annotations_find_something(seen: Seen) -> None:
    for variable in BOARD["templating"]["list"][1:]:
        found = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
        series = seen.prometheus.range(filled_in(found[0]), seen.begin, seen.done)
        values = {one["metric"].get(found[2]) for one in series}
        assert None not in values and values, variable["name"]
    (target,) = [one for one in BOARD["templating"]["list"] if one["name"] == "slo"]
    bounds = [bound for bound in bounds_of(seen) if math.isfinite(bound)]
    assert float(target["current"]["value"]) in bounds, "the target that is chosen at first is a bound of the histogram"
    lost, _ = BOARD["annotations"]["list"]
    assert seen.prometheus.range(filled_in(lost["expr"]), seen.begin, seen.done)
    for annotation in BOARD["annotations"]["list"]:
        seen.prometheus.instant(filled_in(annotation["expr"]), seen.done)


def test_every_rule_is_evaluated_and_every_record_has_values(seen: Seen) -> None:
    found = [rule for group in seen.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(found) == sum(len(group.rules) for group in groups())
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] == "err"] == []
    for rule in (rule for group in groups() for rule in group.rules):
        values = [float(one["value"][1]) for one in seen.prometheus.instant(rule.query, seen.done)]
        assert all(math.isfinite(value) for value in values), rule.name
        assert values or not isinstance(rule, Record), f"{rule.name} has no value"


def test_the_alerts_of_this_load_fire_and_others_do_not(seen: Seen) -> None:
    fired = seen.prometheus.range('ALERTS{alertstate="firing"}', seen.begin, seen.done)
    assert {series["metric"]["alertname"] for series in fired} == {"JitneyRefuses", "JitneyWorkerLost"}
    (lost,) = [series["metric"] for series in fired if series["metric"]["alertname"] == "JitneyWorkerLost"]
    assert (lost["deployment"], lost["cause"]) == ("plain", "died")
    texts = {alert["labels"]["alertname"]: alert["annotations"] for alert in seen.prometheus.ask("alerts")["alerts"]}
    assert texts["JitneyWorkerLost"]["summary"] == "plain: a worker was lost (died)"
    assert texts["JitneyRefuses"]["summary"].startswith("plain refuses ")
    assert "no value" not in str(texts)


def test_outcomes_are_those_that_clients_saw(seen: Seen) -> None:
    counted: Counter[tuple[str, str]] = Counter()
    for series in seen.prometheus.instant("sum by (deployment, outcome) (jitney_requests_total) > 0", seen.done + 5):
        counted[series["metric"]["deployment"], series["metric"]["outcome"]] = int(series["value"][1])
    assert counted == seen.counts
    assert {outcome for deployment, outcome in counted if deployment == "plain"} > {
        "ok",
        "malformed_body",
        "invalid_input",
    }
    assert counted["writer", "cancelled"] == 8


def test_requests_per_second_are_those_of_the_load(seen: Seen) -> None:
    end = seen.done - 2
    expression = filled_in(query("Requests"), deployment="plain", __rate_interval="12s")
    assert seen.prometheus.value(expression, end) == pytest.approx(seen.ended(end - 12, end) / 12, rel=0.05)
    assert seen.ended(0, end + 60) == pytest.approx(seen.bench["requests"]["due"], rel=0.02)


def test_shares_are_those_of_the_load(seen: Seen) -> None:
    counts = seen.bench["requests"]
    assert counts["refused"] > counts["due"] / 50, "the load is too small for refusals"
    assert of_the_load(seen, "Refused") == pytest.approx(counts["refused"] / counts["due"], rel=0.1)
    sizes = {int(size): requests for size, requests in seen.bench["batch_sizes"].items()}
    batches = sum(requests / size for size, requests in sizes.items())
    assert of_the_load(seen, "Mean batch") == pytest.approx(sum(sizes.values()) / batches, rel=0.1)
    assert of_the_load(seen, "Replicas busy", kind="stat") == pytest.approx(seen.bench["server"]["model_busy"], abs=0.1)


def test_phases_add_up_to_the_latency(seen: Seen) -> None:
    """Nothing is left over between the arrival of an item and its answer."""
    expression = filled_in(query("Where the time goes", "{{phase}}"), deployment="plain", __rate_interval=seen.window)
    phases = {one["metric"]["phase"]: float(one["value"][1]) for one in seen.prometheus.instant(expression, seen.done)}
    assert set(phases) == {"queue", "link", "decode", "predict", "encode"}
    assert phases["predict"] == pytest.approx(0.03 + 0.002 * of_the_load(seen, "Mean batch"), rel=0.25)
    of_answers = LATENCY + '{deployment="plain", result="ok"}'
    total, count = (of_answers.replace("{", f"_{part}{{") for part in ("sum", "count"))
    latency = f"sum(rate({total}[{seen.window}])) / sum(rate({count}[{seen.window}]))"
    assert sum(phases.values()) == pytest.approx(seen.prometheus.value(latency, seen.done), rel=0.1)


def test_an_overload_is_more_than_the_replicas_can_do(seen: Seen) -> None:
    """The model takes 30 ms for a batch and 2 ms for each of its 8 items; there are two replicas."""
    expression = filled_in(query("Asked for / can", "{{deployment}}"), deployment="plain")
    (shown,) = seen.prometheus.range(expression, seen.loaded + 11, seen.done)
    values = sorted(float(value) for _, value in shown["values"])
    # More on a busy machine, where sleeping takes longer.
    assert 0.8 < values[len(values) // 2] / (RATE * (0.03 / 8 + 0.002) / 2) < 2


@pytest.mark.parametrize("source", ["keda/scaledobject.yaml", "hpa/prometheus-adapter.yaml"])
def test_autoscalers_ask_for_as_many_replicas_as_the_load_needs(seen: Seen, source: str) -> None:
    text = (ROOT / "deploy/kubernetes/components" / source).read_text()
    (block,) = re.findall(r"(?:query|metricsQuery): >-\n( +)(.*\n(?:\1.*\n)*)", text)
    expression = block[1].replace("<<.LabelMatchers>>", 'job="jitney"').replace("<<.GroupBy>>", "pod")
    (shown,) = seen.prometheus.range(expression, seen.loaded + 11, seen.done)
    values = sorted(float(value) for _, value in shown["values"])
    # The rate of refusals looks at a minute, most of which was before the load.
    answered = seen.bench["requests"]["answered"] / LOAD_S
    least, most = (rate * (0.03 / 8 + 0.002) for rate in (answered, RATE))
    assert 0.8 * least < values[len(values) // 2] < 2 * most


def bounds_of(seen: Seen) -> list[float]:
    found = seen.prometheus.instant("group by (le) (jitney_request_duration_seconds_bucket)", seen.done)
    return sorted(float(series["metric"]["le"]) for series in found)


@pytest.mark.parametrize("percent", [50, 95])
def test_quantiles_are_those_of_the_load_within_a_bucket(seen: Seen, percent: int) -> None:
    """In overload, most requests are refused at once. They must not make the latency look small."""
    shown, measured = of_the_load(seen, f"p{percent}"), seen.bench["latency_ms"][f"p{percent}"] / 1000
    bounds = bounds_of(seen)
    distance = abs(bisect_left(bounds, shown) - bisect_left(bounds, measured))
    assert distance <= 1, f"the panel shows {shown} s, the load generator measured {measured} s"


def test_the_worker_that_was_killed_is_seen(seen: Seen) -> None:
    (lost,) = seen.prometheus.instant("sum by (deployment, cause) (jitney_workers_lost_total) > 0", seen.done)
    assert (lost["metric"], lost["value"][1]) == ({"deployment": "plain", "cause": "died"}, "1")
    shown = seen.prometheus.range(filled_in(query("Workers lost", "{{deployment}} {{cause}}")), seen.begin, seen.done)
    assert [(one["metric"]["deployment"], one["metric"]["cause"]) for one in shown] == [("plain", "died")]
    assert min(at for at, _ in shown[0]["values"]) - seen.killed < 10


def test_the_page_of_metrics_is_well_formed(seen: Seen, promtool: str) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{seen.server.port}/metrics") as page:
        text = page.read()
    ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
