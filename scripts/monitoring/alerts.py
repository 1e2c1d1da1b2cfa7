"""The alerts: when each fires, and what it says.

`page` wakes a person, `ticket` is for working hours, `info` is shown and sent to no person. What to do about each alert
is in docs/operations/monitoring.md, in a section of its name.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from monitoring.queries import ASKED, FAILED, MODEL, READY, REQUESTS

PAGE = "operations/monitoring.md"
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
DOCUMENTATION: str = PROJECT["urls"]["Documentation"]
"""The address of the folder docs/."""
ERROR_BUDGET = 0.005
BY = "by (job, deployment)"
BY_WORKER = "by (job, instance, deployment, replica)"
SERVERS = 'job=~".*jitney.*"'
LOST = "jitney_workers_lost_total"
UNWANTED = 'cause!~"renewed|left"'
"""Losses that no operator asked for."""
MEMORY = "jitney_worker_resident_bytes"
LOADED = "time() - jitney_worker_start_time_seconds - jitney_worker_load_seconds"
"""Seconds since a worker has loaded its model."""
UNTIL_NOW = "jitney_worker_without_progress_seconds"
BATCH = "job_deployment:jitney_batch_seconds:mean_rate"
ITEM = "job_deployment:jitney_item_seconds:mean_rate"
ERRORS = "job_deployment:jitney_errors:ratio_rate"
REFUSALS = "job_deployment:jitney_refusals:ratio_rate"
WHOSE = "{{ $labels.deployment }}"
SHARE = "{{ $value | humanizePercentage }}"


@dataclass(frozen=True)
class Alert:
    """An alert. `summary` and `text` are templates of Prometheus."""

    name: str
    severity: str
    query: str
    wait: str
    """How long the query must hold before it fires."""
    summary: str
    text: str
    labels: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def runbook(self) -> str:
        """Return the address of its section."""
        return f"{DOCUMENTATION}/{PAGE}#{self.name.lower()}"


def burns(name: str, severity: str, factor: float, windows: tuple[str, str], wait: str) -> Alert:
    """Fire if both windows spend the budget of errors too fast: the long one sees enough, the short one ends it soon.

    Ten failed requests are needed: of a service with few requests, one failure is a large share.
    """
    long, short = windows
    limit = f"on () group_left () ({factor:g} * jitney:error_budget:ratio)"
    return Alert(
        name,
        severity,
        f"{ERRORS}{long} > {limit}\n"
        f"and {ERRORS}{short} > {limit}\n"
        f"and sum {BY} (increase({REQUESTS}{{{FAILED}}}[{long}])) >= 10",
        wait,
        f"{WHOSE}: {SHARE} of its requests failed in the last {long}",
        f"The budget of failed requests is spent {factor:g} times as fast as a month allows. Which outcomes: panel "
        "“Failed requests, by outcome”.",
        {"long_window": long, "short_window": short},
    )


SERVER_ALERTS = [
    Alert(
        "JitneyDown",
        "page",
        f"up{{{SERVERS}}} == 0",
        "30s",
        "{{ $labels.instance }} does not answer /metrics",
        "The process has ended, or its port cannot be reached, or it refuses the key (Status, Targets shows 401). "
        "Other alerts say nothing about a server that is down.",
    ),
    Alert(
        "JitneyAbsent",
        "page",
        f"absent(up{{{SERVERS}}})",
        "5m",
        "Prometheus scrapes no jitney server",
        "No target has `jitney` in the name of its job. No other alert can fire.",
    ),
    Alert(
        "JitneyRestarted",
        "info",
        f"changes(process_start_time_seconds{{{SERVERS}}}[5m]) > 0",
        "",
        "{{ $labels.instance }} was started again",
        "Requests that were in flight have failed unless the old process was drained.",
    ),
    Alert(
        "JitneyFrontLags",
        "ticket",
        "histogram_quantile(0.99, sum by (job, instance, le) (rate(jitney_front_lag_seconds_bucket[5m]))) > 0.1",
        "5m",
        "{{ $labels.instance }}: its front wakes {{ $value | humanizeDuration }} too late",
        "Other processes use all cores. Give the front a core, or lower the number of threads of the workers.",
    ),
    Alert(
        "JitneyFilesRunOut",
        "ticket",
        f"process_open_fds{{{SERVERS}}} / process_max_fds{{{SERVERS}}} > 0.8",
        "5m",
        f"{{{{ $labels.instance }}}} has {SHARE} of its file descriptors in use",
        "At 100 % new connections fail. Raise the limit (`ulimit -n`, `LimitNOFILE`), or find clients that leave "
        "connections open.",
    ),
]

FAILURE_ALERTS = [
    Alert(
        "JitneyRequestsFail",
        "page",
        f"{ERRORS}1m > 0.25\nand sum {BY} (increase({REQUESTS}{{{FAILED}}}[1m])) >= 5",
        "",
        f"{WHOSE}: {SHARE} of its requests failed in the last minute",
        "A model is down, or a change broke it. The log has the last tracebacks; panel “Failed requests, by outcome” "
        "has the reasons.",
    ),
    burns("JitneyErrorBudgetBurnsFast", "page", 14.4, ("1h", "5m"), "2m"),
    burns("JitneyErrorBudgetBurns", "page", 6, ("6h", "30m"), "15m"),
    burns("JitneyErrorBudgetBurnsSlowly", "ticket", 3, ("1d", "2h"), "1h"),
    burns("JitneyErrorBudgetBurnsSlowly", "ticket", 1, ("3d", "6h"), "3h"),
    Alert(
        "JitneyInputQuarantined",
        "ticket",
        f'sum {BY} (increase({REQUESTS}{{outcome="quarantined"}}[5m])) > 0',
        "",
        f"{WHOSE}: an input kills workers, and is refused",
        "The log names the requests. Reproduce it with that input; `jitney check` runs a model without a server.",
    ),
]

WORKER_ALERTS = [
    Alert(
        "JitneyNoReplica",
        "page",
        f"sum {BY} ({READY}) == 0\n"
        f"and sum {BY} (jitney_wanted_replicas) > 0\n"
        "unless (\n"
        f'  sum {BY} (jitney_replicas{{state=~"starting|loading"}}) > 0\n'
        f"  unless sum {BY} (increase({LOST}{{{UNWANTED}}}[10m])) > 0\n"
        ")",
        "30s",
        f"{WHOSE} has no ready replica",
        "All requests wait or fail. A first load that is still running is not counted.",
    ),
    Alert(
        "JitneyWorkersCrashLoop",
        "page",
        f"sum {BY} (increase({LOST}{{{UNWANTED}}}[10m])) >= 2.5\n"
        f'or sum {BY} (increase({REQUESTS}{{outcome="crash_looping"}}[5m])) > 0\n'
        f'or sum {BY} (jitney_replicas{{state="given_up"}}) > 0',
        "",
        f"{WHOSE}: workers are lost again and again",
        "The log says how each ended. Common causes: the kernel ended it (out of memory), a bad file of weights, an "
        "input that kills it.",
    ),
    Alert(
        "JitneyWorkerLost",
        "info",
        f"sum by (job, instance, deployment, cause) (increase({LOST}{{{UNWANTED}}}[5m])) > 0",
        "",
        f"{WHOSE}: a worker was lost ({{{{ $labels.cause }}}})",
        "Its requests went to other replicas, and it is being replaced. One loss needs no action.",
    ),
    Alert(
        "JitneyReplicasMissing",
        "ticket",
        f"sum {BY} ({READY}) < sum {BY} (jitney_wanted_replicas)",
        "15m",
        f"{WHOSE}: only {{{{ $value }}}} of its replicas are ready, for 15 minutes",
        "A machine is away, a model cannot be loaded, or no place has what the replica needs. /readyz and /config say "
        "which.",
    ),
    Alert(
        "JitneyStuck",
        "page",
        f"max {BY_WORKER} ({UNTIL_NOW} > 20)\n"
        f"  > on (job, deployment) group_left () 10 * {BATCH}1h\n"
        f"or max {BY_WORKER} ({UNTIL_NOW} > 45)\n"
        f"unless on (job, deployment) {BATCH}1h",
        "",
        f"{WHOSE}/{{{{ $labels.replica }}}} has been in one call of `predict` for {{{{ $value | humanizeDuration }}}}",
        "`predict` hangs. The worker is killed after `batch_timeout_s`, and the log shows where each of its threads "
        "was. Its items are then tried again alone, but an item that ran alone is not. `py-spy dump --pid PID` shows "
        "where the worker is now.",
    ),
    Alert(
        "JitneyModelSlow",
        "ticket",
        f"{BATCH}1m > 3 * ({BATCH}1h offset 1m)\n"
        f"and {ITEM}1m > 3 * ({ITEM}1h offset 1m)\n"
        f"and sum {BY} (increase({MODEL}_count[1m])) >= 5",
        "",
        f"{WHOSE}: `predict` takes {{{{ $value | humanizeDuration }}}} for a batch, three times as long as usual",
        "Items became larger, or the device slower: look at “CPU of the machine”, “GPU busy” and “Seconds for an "
        "item”.",
    ),
    Alert(
        "JitneyMemoryRunsOut",
        "page",
        f"predict_linear(jitney_available_memory_bytes{{{SERVERS}}}[5m], 1800) < 0\n"
        f"unless on (job, instance) min by (job, instance) ({LOADED}) < 300",
        "1m",
        "{{ $labels.instance }}: at this pace, its machine or container has no memory left within half an hour",
        "The kernel then ends the process that needs most. “Memory of workers” says which one grows: restart it, or "
        "give it more memory.",
    ),
    Alert(
        "JitneyWorkerMemoryJumps",
        "info",
        f"max {BY_WORKER} ({MEMORY} > 1.2 * {MEMORY} offset 1m and {MEMORY} - {MEMORY} offset 1m > 67108864)\n"
        f"and max {BY_WORKER} ({LOADED}) > 120",
        "",
        f"{WHOSE}/{{{{ $labels.replica }}}}: its memory grew by a fifth within a minute, "
        "to {{ $value | humanize1024 }}B",
        "One jump is a large input. If it goes on, the model leaks: see “Memory of workers”, and restart the worker "
        "before the kernel ends it.",
    ),
    Alert(
        "JitneyWorkerMemoryGrows",
        "ticket",
        f"min_over_time({MEMORY}[1h]) > 1.1 * max_over_time({MEMORY}[1h] offset 3h)\n"
        f"and max_over_time({MEMORY}[1h] offset 3h) > 1.1 * max_over_time({MEMORY}[1h] offset 6h)",
        "",
        f"{WHOSE}/{{{{ $labels.replica }}}}: its memory has grown for six hours, to {{{{ $value | humanize1024 }}}}B",
        "The model leaks. Restart the worker before the kernel ends it, and look for lists and caches that grow.",
    ),
]

LOAD_ALERTS = [
    Alert(
        "JitneyRefuses",
        "info",
        f"{REFUSALS}1m > 0.05\nand sum {BY} (increase({REQUESTS}{{{ASKED}}}[1m])) >= 20",
        "",
        f"{WHOSE} refuses {SHARE} of its requests",
        "There are more requests than it can answer. A short peak needs no action.",
    ),
    Alert(
        "JitneyQueueSaturated",
        "ticket",
        f"{REFUSALS}5m > 0.05",
        "5m",
        f"{WHOSE} has refused {SHARE} of its requests for more than five minutes",
        "Add replicas, make the model faster, or let clients send less. Panel “Asked for / can” says how many "
        "replicas it takes.",
    ),
    Alert(
        "JitneyReplicasStarve",
        "ticket",
        "job_deployment:jitney_replicas:busy_ratio_rate5m < 0.5\n"
        f"and min_over_time((sum {BY} (jitney_queued_items))[5m:15s]) > 0",
        "5m",
        f"{WHOSE}: items wait although its replicas compute for only {SHARE} of the time",
        "Not the model is the limit, but what is around it: decoding, the link or the front. See “Where the time "
        "goes”.",
    ),
    Alert(
        "JitneyGpuStarves",
        "ticket",
        "max(DCGM_FI_DEV_GPU_UTIL) < 30\nand on () min_over_time((sum(jitney_queued_items))[5m:15s]) > 0",
        "5m",
        "items wait although no GPU is busy for more than {{ $value }} % of the time",
        "Batches reach the GPU too slowly, or are too small for it. See “Where the time goes” and “Fill of batches”.",
    ),
    Alert(
        "JitneyPadding",
        "info",
        f"1 - sum {BY} (rate(jitney_batch_cost_total[1h])) / (sum {BY} (rate(jitney_batch_padded_cost_total[1h])) > 0) "
        "> 0.5",
        "1h",
        f"{WHOSE}: {SHARE} of what its model computes is padding",
        "Items of different length share batches. Leave `policy` at `auto`, or set `group_by`.",
    ),
]

ALERTS = [*SERVER_ALERTS, *FAILURE_ALERTS, *WORKER_ALERTS, *LOAD_ALERTS]
