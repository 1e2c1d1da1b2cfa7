"""At a glance, and one line for each deployment and each server."""

from monitoring.panels import INFO, Rows, states, table, tile
from monitoring.queries import (
    ANSWERED,
    DEPLOYMENTS,
    ITEMS,
    LATENCY,
    READY,
    REQUESTS,
    SERVERS,
    WINDOW,
    asked_for,
    busy,
    failed_share,
    gauge,
    mean,
    padding,
    quantile,
    rate,
    ratio,
    refused_share,
)

FIRING = 'ALERTS{alertname=~"Jitney.+", alertstate="firing"}'
WITHIN = f'{ANSWERED}, le="$slo"'

TILES = [
    tile(
        "Requests",
        "reqps",
        3,
        {"": rate(REQUESTS)},
        "Requests that ended in a second, with any outcome. If it is lower than what your clients send, look for "
        "connections that fail in front of this server.",
    ),
    tile(
        "Items",
        "ops",
        3,
        {"": rate(f"{ITEMS}_sum")},
        "Items that went to a model in a second. A request has one item, except where clients send many items in one "
        "request.",
    ),
    tile(
        "Failed",
        "percentunit",
        3,
        {"": failed_share()},
        "Share of the requests that failed because of the model or the server. Refused requests and clients' own "
        "errors do not count. Not 0: see “Failed requests, by outcome”.",
        warn=0.001,
        bad=0.005,
    ),
    tile(
        "Refused",
        "percentunit",
        3,
        {"": refused_share()},
        "Share of the requests that were refused, or ended after their deadline, because there is too much to do. "
        "Above 5 %: add replicas, or let clients send less.",
        warn=0.01,
        bad=0.05,
    ),
    *(
        tile(
            f"p{percent}",
            "s",
            3,
            {"": quantile(percent, LATENCY, where=ANSWERED)},
            f"{percent} % of the answered requests took less than this. Refused and failed requests do not count. If "
            "it is high, see “Where the time goes”.",
            exemplars=True,
        )
        for percent in (50, 95, 99)
    ),
    tile(
        "Servers down",
        "none",
        3,
        {"": 'count(up{job=~"$job"} == 0) or vector(0)'},
        "Servers that Prometheus cannot scrape now. Above 0: see whether the process runs, and whether it answers on "
        "its port.",
        bad=1,
    ),
    tile(
        "Within $slo s",
        "percentunit",
        3,
        {"": ratio(rate(f"{LATENCY}_bucket", where=WITHIN), rate(f"{LATENCY}_count", where=ANSWERED))},
        "Share of the answered requests that took at most the target. Choose the target at the top of the page.",
    ),
    tile(
        "Replicas",
        "none",
        3,
        {"ready": gauge(READY), "wanted": gauge("jitney_wanted_replicas")},
        "Replicas that are loaded and answer, and how many there should be. If fewer are ready than wanted, see "
        "“States of replicas”.",
    ),
    tile(
        "Replicas busy",
        "percentunit",
        3,
        {"": busy()},
        "Share of the time that ready replicas spend in `predict`. Near 100 % the model is the limit: add replicas, "
        "or make the model faster.",
        warn=0.85,
        bad=0.97,
    ),
    tile(
        "Items waiting",
        "none",
        3,
        {"": gauge("jitney_queued_items")},
        "Items in the queue now. The queue is bounded, so this says little about overload: look at “Refused” too.",
    ),
    tile(
        "Oldest item",
        "s",
        3,
        {"": gauge("jitney_oldest_item_seconds", how="max")},
        "Time for which the oldest item has waited. If it grows while replicas are not busy, something in front of "
        "the model is slow.",
    ),
    tile(
        "Mean batch",
        "none",
        3,
        {"": mean(ITEMS)},
        "Items in a batch. If it is small while items wait, see “Why batches were closed”.",
    ),
    tile(
        "Padding",
        "percentunit",
        3,
        {"": padding()},
        "Share of the cost that is padding: every item of a batch is padded to the largest one. It is 0 for models "
        'without `cost=`. Above 30 %: let `policy="auto"` sort by length, or set `group_by`.',
        warn=0.3,
        bad=0.5,
    ),
    tile(
        "Alerts",
        "none",
        3,
        {"": f"count({FIRING}) or vector(0)"},
        "Alerts of jitney that fire now. Each is explained, with what to do, in docs/operations/monitoring.md.",
        bad=1,
    ),
]

BY = "deployment"
LINES = [
    table(
        "Each deployment",
        "short",
        24,
        {
            "requests/s": rate(REQUESTS, BY),
            "p50": quantile(50, LATENCY, BY, where=ANSWERED),
            "p95": quantile(95, LATENCY, BY, where=ANSWERED),
            "p99": quantile(99, LATENCY, BY, where=ANSWERED),
            "failed": failed_share(BY),
            "refused": refused_share(BY),
            "waiting": gauge("jitney_queued_items", BY),
            "oldest": gauge("jitney_oldest_item_seconds", BY, how="max"),
            "mean batch": mean(ITEMS, BY),
            "busy": busy(BY),
            "asked for / can": asked_for(BY, DEPLOYMENTS, WINDOW),
            "ready": gauge(READY, BY),
            "wanted": gauge("jitney_wanted_replicas", BY),
        },
        "One line for each deployment. Click on a name to see only that deployment. Add replicas first to the one "
        "whose columns `busy` and `asked for / can` are high.",
        units={
            "requests/s": "reqps",
            "p50": "s",
            "p95": "s",
            "p99": "s",
            "failed": "percentunit",
            "refused": "percentunit",
            "oldest": "s",
            "busy": "percentunit",
            "asked for / can": "percentunit",
            "ready": "none",
            "wanted": "none",
        },
    ),
    table(
        "Each server",
        "short",
        12,
        {
            "requests/s": rate(REQUESTS, "instance"),
            "connections": gauge("jitney_connections", "instance", of=SERVERS),
            "cores": f"sum by (instance) (rate(process_cpu_seconds_total{{{SERVERS}}}[{WINDOW}]))",
            "memory": gauge("process_resident_memory_bytes", "instance", of=SERVERS),
            "up for": f"time() - max by (instance) (process_start_time_seconds{{{SERVERS}}})",
            INFO: gauge("jitney_info", "instance", "version", of=SERVERS),
        },
        "One line for each server, with what its front uses. If one server has far fewer requests, look at your load "
        "balancer. If versions differ for long, an upgrade has stopped in the middle.",
        units={"requests/s": "reqps", "memory": "bytes", "up for": "s"},
    ),
    table(
        "Models",
        "short",
        12,
        {INFO: f"max by (deployment, policy, task, version) (jitney_deployment_info{{{DEPLOYMENTS}}})"},
        "What is deployed: the batch policy, the task and the version of each deployment. Two lines for one deployment "
        "mean that servers disagree.",
    ),
    states(
        "Alerts over time",
        "none",
        24,
        {"{{alertname}} {{deployment}}": f"max by (alertname, deployment) ({FIRING})"},
        "Which alerts fired, and for how long. Nothing is shown where none did, or where the rules of "
        "deploy/prometheus are not loaded.",
    ),
]

ROWS: Rows = {"At a glance": TILES, "Deployments": LINES}
