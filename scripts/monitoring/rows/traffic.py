"""Traffic and latency."""

from monitoring.panels import Rows, heatmap, lines, stack
from monitoring.queries import (
    ANSWERED,
    CLIENTS,
    FAILED,
    LATENCY,
    MODEL,
    QUEUE,
    REFUSED,
    REQUESTS,
    SERVERS,
    phases,
    quantile,
    quantiles,
    rate,
)

TRAFFIC = [
    stack(
        "Requests, by outcome",
        "reqps",
        12,
        {"{{outcome}}": f"{rate(REQUESTS, 'outcome')} > 0"},
        "Requests that ended in a second, by outcome. docs/reference/outcomes.md explains each of them.",
    ),
    stack(
        "HTTP answers, by class",
        "reqps",
        12,
        {"{{protocol}} {{class}}": f"{rate('jitney_http_requests_total', 'protocol', 'class', of=SERVERS)} > 0"},
        "All HTTP requests, also those that reach no deployment: unknown paths, wrong keys, probes and pages. `none` "
        "is a client that left.",
    ),
    stack(
        "Refused requests, by outcome",
        "reqps",
        8,
        {"{{outcome}}": f"{rate(REQUESTS, 'outcome', where=REFUSED)} > 0"},
        "Requests that were refused because of too much load. `queue_full` and `wait_too_long`: add replicas. "
        "`queue_bytes_full`: raise `max_queued_bytes`. `would_be_late`: the target is below what the load allows. "
        "`deadline_exceeded`: it was accepted, and took too long.",
    ),
    stack(
        "Failed requests, by outcome",
        "reqps",
        8,
        {"{{outcome}}": f"{rate(REQUESTS, 'outcome', where=FAILED)} > 0"},
        "Requests that failed because of the model or the server. `model_failed`: the log has the traceback. "
        "`worker_lost`: see “Workers lost”. `draining` (a shutdown) and `scaled_to_zero` do not count as "
        "failed: they are in “Requests, by outcome”.",
    ),
    stack(
        "Clients' errors and cancelled requests",
        "reqps",
        8,
        {"{{outcome}}": f"{rate(REQUESTS, 'outcome', where=CLIENTS)} > 0"},
        "Requests that clients sent wrongly, or did not wait for. Many `cancelled`: clients have a timeout that is "
        "shorter than the latency. They do not count as failed.",
    ),
    stack(
        "Answers in parts, by outcome",
        "reqps",
        8,
        {"{{outcome}}": f"{rate('jitney_streams_total', 'outcome')} > 0"},
        "Answers that came in parts and ended. `too_slow` and `cancelled` are clients that did not read to the end.",
    ),
    lines(
        "Parts",
        "ops",
        8,
        {"{{deployment}}": rate("jitney_parts_total", "deployment")},
        "Parts of answers that models made in a second. If it falls while requests do not, steps have become slow: "
        "see “Steps”.",
    ),
    lines(
        "Tokens",
        "ops",
        8,
        {"{{deployment}} {{kind}}": rate("jitney_tokens_total", "deployment", "kind")},
        "Tokens of the answers that ended: `input` were read, `output` were written. Only models that count tokens "
        "have them.",
    ),
]

NOTE = "Choose one deployment at the top of the page: quantiles of several mix fast and slow models."

LATENCIES = [
    lines(
        "Latency of answers",
        "s",
        8,
        quantiles(LATENCY, ANSWERED),
        f"Seconds from the arrival of a request to its answer. {NOTE} If it grows, see whether the queue, the model or "
        "something else grows with it.",
        exemplars=True,
    ),
    lines(
        "Wait in the queue",
        "s",
        8,
        quantiles(QUEUE),
        "Seconds that an item waited until its batch ran. If this is most of the latency, add replicas.",
    ),
    lines(
        "predict, for a batch",
        "s",
        8,
        quantiles(MODEL),
        "Seconds that `predict` took for a batch. If it grows while batches do not, the model or its device has "
        "become slower.",
    ),
    stack(
        "Where the time goes",
        "s",
        12,
        phases(),
        "The mean item, in phases that add up, and what its request adds. `queue`: add replicas. `decode` or "
        "`encode`: send smaller or simpler inputs. `link`: see whether the machine has free cores. `receive` or "
        "`render`: clients or their network are slow.",
    ),
    heatmap(
        "Distribution of the latency",
        "s",
        12,
        {"{{le}}": rate(LATENCY + "_bucket", "le", where=ANSWERED)},
        "How many answers took how long. Two bands are two kinds of requests, or a batch that some just miss: "
        "quantiles hide that.",
    ),
    lines(
        "decode and encode, for a batch, p95",
        "s",
        8,
        {
            "decode": quantile(95, "jitney_decode_duration_seconds"),
            "encode": quantile(95, "jitney_encode_duration_seconds"),
        },
        "Seconds that a worker takes to turn the bytes of a batch into Python objects, and answers into bytes. If "
        "they are near `predict`, images or JSON cost as much as the model.",
    ),
    lines(
        "Refused and failed requests, p95",
        "s",
        8,
        {"{{result}}": quantile(95, LATENCY, "result", where='result!="ok"')},
        "Seconds until a request was refused or failed. Refusals take less than a millisecond. Failures that take as "
        "long as a timeout are hung workers or late answers.",
    ),
    lines(
        "First part, and gaps between parts",
        "s",
        8,
        {
            "first part p50": quantile(50, "jitney_first_part_seconds"),
            "first part p95": quantile(95, "jitney_first_part_seconds"),
            "gap p50": quantile(50, "jitney_part_gap_seconds"),
            "gap p95": quantile(95, "jitney_part_gap_seconds"),
        },
        "Answers in parts: seconds until clients see something, and between two parts. A long first part is a long "
        "queue; long gaps are slow steps.",
    ),
]

ROWS: Rows = {"Traffic": TRAFFIC, "Latency": LATENCIES}
