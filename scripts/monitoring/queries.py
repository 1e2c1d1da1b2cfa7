"""Pieces of PromQL that panels and rules are made of.

Every division drops denominators of 0, and every quantile drops windows without a measurement: a panel shows nothing
where nothing happened, and never NaN.
"""

from monitoring.tables import outcomes

WINDOW = "$__rate_interval"
SERVERS = 'job=~"$job", instance=~"$instance"'
DEPLOYMENTS = f'{SERVERS}, deployment=~"$deployment"'

REQUESTS = "jitney_requests_total"
LATENCY = "jitney_request_duration_seconds"
QUEUE = "jitney_queue_duration_seconds"
MODEL = "jitney_model_duration_seconds"
ITEMS = "jitney_batch_items"
READY = "jitney_ready_replicas"
ANSWERED = 'result="ok"'

FAILED = f'outcome=~"{outcomes("model", "server")}"'
REFUSED = f'outcome=~"{outcomes("load")}"'
CLIENTS = f'outcome=~"{outcomes("client")}|cancelled"'
TRIED = f'outcome=~"ok|{outcomes("model", "server")}"'
"""Requests whose answer depended on the server and its models: not refused, and not wrong."""
ASKED = f'outcome=~"ok|{outcomes("model", "server", "load")}"'
"""The same and the refused ones."""


def grouped(by: tuple[str, ...]) -> str:
    return f" by ({', '.join(by)}) " if by else ""


def rate(series: str, *by: str, where: str = "", of: str = DEPLOYMENTS) -> str:
    """Sum what counters grow by in a second."""
    selector = ", ".join(part for part in (of, where) if part)
    return f"sum{grouped(by)}(rate({series}{{{selector}}}[{WINDOW}]))"


def gauge(series: str, *by: str, how: str = "sum", where: str = "", of: str = DEPLOYMENTS) -> str:
    """Add up gauges, or take the largest with `how="max"`."""
    selector = ", ".join(part for part in (of, where) if part)
    return f"{how}{grouped(by)}({series}{{{selector}}})"


def ratio(part: str, whole: str) -> str:
    """Divide, where there is something to divide by."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str) -> str:
    """Divide counters of outcomes; 0 where none of the part was ever counted."""
    return f"({part} or {whole} * 0) / ({whole} > 0)"


def failed_share(*by: str) -> str:
    return share(rate(REQUESTS, *by, where=FAILED), rate(REQUESTS, *by, where=TRIED))


def refused_share(*by: str) -> str:
    return share(rate(REQUESTS, *by, where=REFUSED), rate(REQUESTS, *by, where=ASKED))


def quantile(percent: int, histogram: str, *by: str, where: str = "", of: str = DEPLOYMENTS) -> str:
    """Estimate a quantile. NaN is not at least 0, so a window without measurements has no value."""
    buckets = rate(f"{histogram}_bucket", *by, "le", where=where, of=of)
    return f"histogram_quantile({percent / 100:g}, {buckets}) >= 0"


def quantiles(histogram: str, where: str = "") -> dict[str, str]:
    return {f"p{percent}": quantile(percent, histogram, where=where) for percent in (50, 95, 99)}


def mean(histogram: str, *by: str, where: str = "") -> str:
    return ratio(rate(f"{histogram}_sum", *by, where=where), rate(f"{histogram}_count", *by, where=where))


def padding(*by: str) -> str:
    """Share of the cost that is not of the items themselves."""
    return f"1 - {ratio(rate('jitney_batch_cost_total', *by), rate('jitney_batch_padded_cost_total', *by))}"


def reasons() -> str:
    """Divide the batches of each reason by all batches."""
    batches = "jitney_batches_total"
    return f"{rate(batches, 'reason')} / on () group_left () ({rate(batches)} > 0) > 0"


def phases() -> dict[str, str]:
    """Divide the seconds in each phase by the items that had it, or by the requests."""
    seconds = "jitney_phase_seconds_total"
    requests = 'phase=~"receive|render"'
    per_request = f"{rate(seconds, 'phase', where=requests)} / on () group_left () ({rate(f'{LATENCY}_count')} > 0)"
    items = requests.replace("=~", "!~")
    per_item = f"{rate(seconds, 'phase', where=items)} / on () group_left () ({rate(f'{QUEUE}_count')} > 0)"
    return {"{{phase}}": per_item, "{{phase}} of a request": per_request}


def busy(*by: str) -> str:
    """Divide the seconds in `predict` by the seconds that ready replicas had."""
    return ratio(rate(f"{MODEL}_sum", *by), gauge(READY, *by))


def asked_for(by: str, of: str, window: str) -> str:
    """Divide the seconds of work that arrive in a second, refused work too, by the replicas that can do it.

    In full batches an item costs its part of the launch and what it adds. Refused items do not count as arrivals.
    """
    turned_away = f'{REQUESTS}{{{of}{", " if of else ""}{REFUSED}, outcome!="deadline_exceeded"}}'
    where = f"{{{of}}}" if of else ""
    arrivals = f"sum by ({by}) (jitney_arrivals_per_second{where})"
    launch = f"jitney_launch_cost_seconds{where} / jitney_max_batch_items{where}"
    item = f"max by ({by}) (jitney_item_cost_seconds{where} + {launch})"
    asked = f"({arrivals} + sum by ({by}) (rate({turned_away}[{window}]))) * {item}"
    return f"{asked} / (sum by ({by}) ({READY}{where}) > 0) > 0"
