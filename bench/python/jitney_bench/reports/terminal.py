"""What a person sees: a line that changes while it runs, and a plain table at the end."""

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

CLEAR = "\r\x1b[K"
FULL = 0.85
"""From this share on something has nothing in reserve worth the name."""
NONE_DUE = {
    "closed": "the users waited for earlier answers all the time; raise --duration",
    "open": "nothing was due in the window; raise --duration or --rate",
}
"""Why nothing may have been due, by the kind of load."""
NOTABLE = 0.1
"""A smaller share of the time waited for a core is not worth a word."""
ENOUGH_FOR = {"p99": 100, "p99.9": 1000}
"""Quantile → requests from which on it is less than the maximum."""
HELD = 0.01
"""Above this share, requests that waited for one of the connections are worth one."""


class Live:
    """One line on a terminal; writes nothing where it is not a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._is_open = False

    def show(self, text: str) -> None:
        """Put this in place of what was there."""
        if self._is_shown:
            self._stream.write(CLEAR + text)
            self._stream.flush()
            self._is_open = True

    def close(self) -> None:
        """Leave the line to others."""
        if self._is_open:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._is_open = False


def live_line(point: Mapping[str, Any], duration_s: float, label: str = "") -> str:
    """Write an interval in one line."""
    errors = point["refused"] + point["failed"]
    latency = "no answers" if point["p50_ms"] is None else f"p50 {ms(point['p50_ms'])}  p99 {ms(point['p99_ms'])}"
    refused = f"  {errors} refused or failed" if errors else ""
    parts = f"  {point['parts_per_s']:,.0f} parts/s" if point["parts_per_s"] else ""
    return f"{label}{point['to_s']:.0f} of {duration_s:.0f} s  {point['rate_per_s']:,.0f}/s{parts}  {latency}{refused}"


def others(run: Mapping[str, Any], cores: int) -> str | None:
    """Say so if the client had to wait for a core that neither it nor the server used; None if not, or not known."""
    client, server = run["client"], run["server"]
    if server["cpu"] is None or client["waited"] < NOTABLE or client["cpu"] + server["cpu"] >= FULL * cores:
        return None
    return (
        f"the client waited for a core {client['waited']:.0%} of the time, though it and the server used only "
        f"{client['cpu'] + server['cpu']:.1f} of {cores}: something else uses this machine"
    )


def stopped_line(points: Sequence[Mapping[str, Any]], duration_s: float) -> str:
    """Write what there is of a run that was broken off: quantiles of the whole come only with its end."""
    counts = {kind: sum(point[kind] for point in points) for kind in ("answered", "refused", "failed")}
    shares, last = _shares(counts) if any(counts.values()) else "no answers", points[-1]
    length_s = last["to_s"] - points[0]["from_s"]
    latency = "" if last["p50_ms"] is None else f"; recently p50 {ms(last['p50_ms'])}  p99 {ms(last['p99_ms'])}"
    return (
        f"stopped after {length_s:.1f} of {duration_s:g} s: {shares}, "
        f"{counts['answered'] / max(length_s, 1e-9):,.1f} answers/s{latency}; nothing is written"
    )


def run_lines(run: Mapping[str, Any], cores: int, loop: str) -> list[str]:
    """Write a run as the lines of its table; `cores` are those of the machine, the `loop` is closed or open."""
    requests, rows = run["requests"], list[tuple[str, str]]()
    rows.append(
        ("requests", f"{requests['due']:,} due in {run['window_s']:g} s: {_shares(requests) or NONE_DUE[loop]}")
    )
    rows += [
        ("", f"{count['requests']:,} of {_end(count)}") for count in run["outcomes"] if count["kind"] != "answered"
    ]
    if run["items_failed"]:
        asked = run["items_answered"] + run["items_failed"]
        rows.append(("", f"{run['items_failed']:,} of {asked:,} items failed in requests that were answered"))
    items = f", {run['items_per_s']:,.1f} items/s" if run["items_answered"] != requests["answered"] else ""
    rows.append(("rate", f"{run['rate_per_s']:,.1f} answers/s{items}{_part_rates(run)}"))
    rows += _part_rows(run["parts"], requests["answered"])
    rows.append(("latency", quantiles(run["latency_ms"], requests["answered"])))
    if run["refused_latency_ms"]:
        rows.append(("of refusals", quantiles(run["refused_latency_ms"], requests["refused"])))
    rows += _server_rows(run)
    client = run["client"]
    said = f"{client['cpu']:.0%} of a core, {client['connections_opened']:,} connections"
    if client["waited"] >= NOTABLE:
        said += f", waited for a core {client['waited']:.0%} of the time"
    if client["late_ms"]:
        said += f", p99 of lateness {ms(client['late_ms']['p99'])}"
    rows.append(("client", said))
    lines = table(rows)
    if run["server"]["gone"]:
        lines.append(gone_line(run))
    elif client["is_limit"]:
        lines.append(f"warning: this measured the client, not the server: {client['why']}")
    elif (why := others(run, cores)) is not None:
        lines.append(f"warning: {why}")
    if client.get("held_share", 0) > HELD:
        lines.append(
            f"warning: {client['held_share']:.0%} of the requests were due while all connections were busy, and waited "
            "for one: the server does not keep up, or needs more --connections for this rate"
        )
    return lines


def gone_line(run: Mapping[str, Any]) -> str:
    """Say that there was no server any more, and so nothing from its side."""
    return f"warning: the server had ended before the run did, and its counters are lost: {run['server']['gone']}"


def together_lines(runs: Sequence[Mapping[str, Any]], together: Mapping[str, Mapping[str, float] | None]) -> list[str]:
    """Write several runs as one: the median of their rates, and the times of all their answers."""
    rates = sorted(run["rate_per_s"] for run in runs)
    rate = f"{statistics.median(rates):,.1f} answers/s ({rates[0]:,.1f} to {rates[-1]:,.1f})"
    answered = sum(run["requests"]["answered"] for run in runs)
    parts = None
    if streams := [run["parts"] for run in runs if run["parts"]]:
        parts = {**together, "count": sum(one["count"] for one in streams)}
        of_parts = sorted(one["rate_per_s"] for one in streams)
        rate += f", {statistics.median(of_parts):,.1f} parts/s ({of_parts[0]:,.1f} to {of_parts[-1]:,.1f})"
    latency = ("latency", quantiles(together["latency_ms"], answered))
    return table([("rate", rate), *_part_rows(parts, answered), latency])


def _part_rates(run: Mapping[str, Any]) -> str:
    parts = run["parts"]
    if parts is None:
        return ""
    tokens = "" if parts["tokens_per_s"] is None else f", {parts['tokens_per_s']:,.1f} tokens/s"
    return f", {parts['rate_per_s']:,.1f} parts/s{tokens}"


def _part_rows(parts: Mapping[str, Any] | None, answered: int) -> Iterable[tuple[str, str]]:
    if parts is not None:
        yield "first part", quantiles(parts["first_ms"], answered)
        if parts["gap_ms"] is not None:
            yield "between parts", quantiles(parts["gap_ms"], parts["count"], "parts")


def _server_rows(run: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, what in (
        ("queue", "in the queue"),
        ("batch", "around the model"),
        ("model", "in the model"),
        ("first_part", "to the first part"),
    ):
        if run["server_ms"] and run["server_ms"][name]:
            yield what, quantiles(run["server_ms"][name])
    sizes = run["batch_sizes"]
    if sizes:
        total = sum(sizes.values())
        mean = sum(int(size) * count for size, count in sizes.items()) / total
        most = sorted(sizes.items(), key=lambda one: -one[1])[:4]
        shares = ", ".join(f"{count / total:.0%} in {size}" for size, count in most)
        yield "batches", f"a request is in a batch of {mean:.1f} items on average: {shares}"
    if run["closed_by"]:
        total = sum(run["closed_by"].values())
        reasons = sorted(run["closed_by"].items(), key=lambda one: -one[1])
        yield "closed by", ", ".join(f"{reason} {count / total:.0%}" for reason, count in reasons)
    server = run["server"]
    if server["model_busy"] is not None:
        text = f"the model computed {server['model_busy']:.0%} of the time"
        if server["cpu"] is not None:
            text += f"; {server['cpu']:.2f} cores, {server['front_cpu']:.2f} of them the front"
            text += f"; {server['resident_mb']:.0f} MB"
        yield "server", text


def _shares(requests: Mapping[str, int]) -> str:
    parts = [f"{requests[kind]:,} {kind}" for kind in ("answered", "refused", "failed")]
    return ", ".join(part for part in parts if not part.startswith("0 "))


def _end(outcome: Mapping[str, Any]) -> str:
    status = str(outcome["status"]) if outcome["status"] else "no answer,"
    return f"{status} {outcome['reason']}".strip()


def quantiles(values: Mapping[str, float] | None, count: int | None = None, what: str = "requests") -> str:
    """Write the usual quantiles in one line, and which of them are the maximum because there are few requests."""
    if values is None:
        return "none was answered"
    names = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p99_9": "p99.9", "max": "max"}
    line = "  ".join(f"{shown} {ms(values[name])}" for name, shown in names.items())
    if count is None or count >= ENOUGH_FOR["p99.9"]:
        return line
    few = [shown for shown, enough in ENOUGH_FOR.items() if count < enough]
    return f"{line}  ({' and '.join(few)} {'are' if len(few) > 1 else 'is'} the maximum of only {count} {what})"


def ms(value: float) -> str:
    """Write milliseconds with three digits that matter."""
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Align the second column."""
    width = max(len(name) for name, _ in rows)
    return [f"{name:{width}}  {text}" for name, text in rows]


def sweep_lines(document: Mapping[str, Any]) -> list[str]:
    """Write a sweep as lines."""
    points = document["points"]
    width = max(len(point["label"]) for point in points)
    has_parts = any(point["run"]["parts"] for point in points)
    named = f"  {'parts/s':>10}  {'first p50':>9}  {'gap p99':>8}" if has_parts else ""
    lines = [f"{'load':{width}}  {'answers/s':>10}{named}  {'p50':>8}  {'p99':>8}  errors  model  client"]
    for place, point in enumerate(points):
        run = point["run"]
        p50, p99 = (ms(run["latency_ms"][name]) if run["latency_ms"] else "-" for name in ("p50", "p99"))
        due = run["requests"]["due"]
        errors = 1 - run["requests"]["answered"] / due if due else 0.0
        busy = "-" if run["server"]["model_busy"] is None else f"{run['server']['model_busy']:.0%}"
        mark = "  ← knee" if place == document["knee"] else ""
        of_parts = _part_cells(run) if has_parts else ""
        lines.append(
            f"{point['label']:{width}}  {run['rate_per_s']:10,.1f}{of_parts}  {p50:>8}  {p99:>8}  "
            f"{errors:6.1%}  {busy:>5}  {run['client']['cpu']:6.0%}{mark}"
        )
    return [*lines, f"limit: {document['limit']['who']}: {document['limit']['why']}"]


def _part_cells(run: Mapping[str, Any]) -> str:
    parts: Mapping[str, Any] = run["parts"] or {"rate_per_s": 0.0, "first_ms": None, "gap_ms": None}
    first, gap = (ms(parts[name][p]) if parts[name] else "-" for name, p in (("first_ms", "p50"), ("gap_ms", "p99")))
    return f"  {parts['rate_per_s']:10,.1f}  {first:>9}  {gap:>8}"
