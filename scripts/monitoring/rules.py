"""The recording rules, and the file of all rules."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitoring.alerts import ALERTS, ERROR_BUDGET, Alert
from monitoring.queries import ASKED, FAILED, LATENCY, MODEL, READY, REFUSED, REQUESTS, TRIED, asked_for

BY = "by (job, deployment)"
NOTE = """\
# Written by `make docs` from the tables in crates/core. Do not edit: scripts/monitoring has the source.
# docs/operations/monitoring.md explains each alert, and how to change the addresses in `runbook_url`.
# Rules of the last group are evaluated as often as `evaluation_interval` says: with 5 s, an alert without a `for` fires
# within 10 s of the scrape that shows it.
"""


@dataclass(frozen=True)
class Record:
    """A recording rule: a query that is evaluated once for all its readers."""

    name: str
    query: str


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together, one after the other."""

    name: str
    rules: Sequence[Record | Alert] = field(default_factory=list[Record | Alert])
    interval: str | None = None


def errors(window: str) -> Record:
    """Share of failed requests; refused ones and clients' errors are in neither number."""
    failed = f"sum {BY} (rate({REQUESTS}{{{FAILED}}}[{window}]))"
    tried = f"sum {BY} (rate({REQUESTS}{{{TRIED}}}[{window}]))"
    return Record(f"job_deployment:jitney_errors:ratio_rate{window}", f"{failed}\n/\n({tried} > 0)")


def refusals(window: str) -> Record:
    refused = f"sum {BY} (rate({REQUESTS}{{{REFUSED}}}[{window}]))"
    asked = f"sum {BY} (rate({REQUESTS}{{{ASKED}}}[{window}]))"
    return Record(f"job_deployment:jitney_refusals:ratio_rate{window}", f"{refused}\n/\n({asked} > 0)")


def model_seconds(of: str, counted: str, window: str) -> Record:
    """Seconds in `predict` for a batch, or for an item."""
    seconds = f"sum {BY} (rate({MODEL}_sum[{window}]))"
    return Record(
        f"job_deployment:jitney_{of}_seconds:mean_rate{window}",
        f"{seconds}\n/\n(sum {BY} (rate({counted}[{window}])) > 0)",
    )


def groups() -> list[Group]:
    busy = f"sum {BY} (rate({MODEL}_sum[5m]))\n/\n(sum {BY} ({READY}) > 0)"
    buckets = f'sum by (job, deployment, le) (rate({LATENCY}_bucket{{result="ok"}}[5m]))'
    now: list[Record | Alert] = [
        Record("jitney:error_budget:ratio", f"vector({ERROR_BUDGET:g})"),
        Record("job_deployment:jitney_requests:rate5m", f"sum {BY} (rate({REQUESTS}[5m]))"),
        *(errors(window) for window in ("1m", "5m", "30m", "1h")),
        *(refusals(window) for window in ("1m", "5m")),
        Record(
            "job_deployment:jitney_request_duration_seconds:p95_rate5m", f"histogram_quantile(0.95, {buckets}) >= 0"
        ),
        Record("job_deployment:jitney_replicas:busy_ratio_rate5m", busy),
        Record("job_deployment:jitney_asked_for:ratio_rate1m", asked_for("job, deployment", "", "1m")),
        *(model_seconds("batch", f"{MODEL}_count", window) for window in ("1m", "1h")),
        *(model_seconds("item", "jitney_batch_items_sum", window) for window in ("1m", "1h")),
    ]
    return [
        # Their windows are long, and reading them often costs more than it shows.
        Group("jitney.hours", [errors("2h"), errors("6h")], interval="1m"),
        Group("jitney.days", [errors("1d"), errors("3d")], interval="5m"),
        # One group, so that alerts see the records of the same instant.
        Group("jitney", [*now, *ALERTS]),
    ]


def quoted(text: str) -> str:
    """Return a string as YAML reads it; JSON is a part of YAML."""
    return json.dumps(text, ensure_ascii=False)


def block(key: str, text: str) -> list[str]:
    """Return a key and a text that is written line by line."""
    return [f"        {key}: |-", *(f"          {line}" for line in text.splitlines())]


def written(rule: Record | Alert) -> list[str]:
    if isinstance(rule, Record):
        return [f"      - record: {rule.name}", *block("expr", rule.query)]
    labels = {"severity": rule.severity, **rule.labels}
    annotations = {"summary": rule.summary, "description": rule.text, "runbook_url": rule.runbook}
    return [
        f"      - alert: {rule.name}",
        *block("expr", rule.query),
        *([f"        for: {rule.wait}"] if rule.wait else []),
        "        labels:",
        *(f"          {key}: {quoted(value)}" for key, value in labels.items()),
        "        annotations:",
        *(f"          {key}: {quoted(value)}" for key, value in annotations.items()),
    ]


def document() -> str:
    """Return the file of rules."""
    lines = ["groups:"]
    for group in groups():
        lines += [f"  - name: {group.name}"]
        lines += [f"    interval: {group.interval}"] if group.interval else []
        lines += ["    rules:", *(line for rule in group.rules for line in written(rule))]
    return NOTE + "\n".join(lines) + "\n"


def resource() -> str:
    """Return the same rules as an object for the Prometheus operator of Kubernetes."""
    head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: jitney}\nspec:\n"
    return NOTE + head + textwrap.indent(document().removeprefix(NOTE), "  ")
