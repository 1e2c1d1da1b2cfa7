"""Batches, the queue, and how near the limits are."""

from monitoring.panels import Rows, heatmap, lines, stack
from monitoring.queries import (
    DEPLOYMENTS,
    ITEMS,
    SERVERS,
    WINDOW,
    asked_for,
    busy,
    gauge,
    mean,
    padding,
    quantile,
    rate,
    ratio,
    reasons,
)

BY = "deployment"
HELD = "jitney_hold_duration_seconds"
STEPS = "jitney_step_seconds"

BATCHES = [
    heatmap(
        "Sizes of batches",
        "none",
        8,
        {"{{le}}": rate(ITEMS + "_bucket", "le")},
        "How many batches had how many items. Batches of 1 under load mean that items cannot share a batch: see "
        "“Lanes”.",
    ),
    stack(
        "Why batches were closed",
        "percentunit",
        8,
        {"{{reason}}": reasons()},
        "Share of each reason. `full` means that the limit of the batch was reached; `eager` that a replica was free. "
        "The guide explains all of them (“Batch policies”).",
        most=1,
    ),
    lines(
        "Fill of batches",
        "percentunit",
        8,
        {"{{deployment}}": ratio(mean(ITEMS, BY), gauge("jitney_max_batch_items", BY, how="max"))},
        "Mean batch, as a share of `max_batch_size`. If it is low while items wait, raise nothing: see “Why batches "
        "were closed”. Near 100 %: a larger `max_batch_size` may help.",
        most=1,
    ),
    lines(
        "Padding",
        "percentunit",
        8,
        {"{{deployment}}": padding(BY)},
        "Share of the cost that is padding. Above 30 %: items of different length share batches. Set `group_by`, or "
        "leave `policy` at `auto`.",
        bad=0.5,
    ),
    lines(
        "Held batches",
        "s",
        8,
        {"mean": mean(HELD), "p99": quantile(99, HELD)},
        "Seconds for which a batch waited for more items although a replica was free. `auto` does this where its "
        "measurements show that it lowers the mean latency.",
    ),
    lines(
        "Share of batches that were held",
        "percentunit",
        8,
        {"{{deployment}}": ratio(rate(HELD + "_count", BY), rate("jitney_batches_total", BY))},
        "How often a batch waited for more items. If the latency "
        'matters more than the throughput, set `policy="eager"` and compare.',
        most=1,
    ),
    lines(
        "Learned costs",
        "s",
        8,
        {
            "launch {{deployment}}": gauge("jitney_launch_cost_seconds", BY, how="max"),
            "item {{deployment}}": gauge("jitney_item_cost_seconds", BY, how="max"),
        },
        "What a batch costs whatever it holds, and what an item adds, as learned. A launch that costs far more than "
        "an item is why batches pay.",
    ),
    lines(
        "Clients that return",
        "percentunit",
        8,
        {"{{deployment}}": gauge("jitney_returns_ratio", BY, how="max")},
        "Share of the answers that are soon followed by another request. `auto` waits for such clients.",
        most=1,
    ),
    lines(
        "Work done again",
        "ops",
        8,
        {
            "{{deployment}} {{why}}": f"{rate('jitney_reruns_total', BY, 'why')} > 0",
            "{{deployment}} hedged": f"{rate('jitney_hedged_items_total', BY)} > 0",
        },
        "Work that is done twice: because a worker was lost, a batch was split to find a failing item or did not fit "
        "into memory, or a machine was silent. Usually 0. `out_of_memory`: lower `max_batch_size`.",
    ),
    lines(
        "Steps",
        "s",
        8,
        {"mean": mean(STEPS), "p95": quantile(95, STEPS)},
        "Models that work in steps: seconds that one step took. It is the time between two tokens, and grows with the "
        "items in a step.",
    ),
    lines(
        "Items in a step",
        "none",
        8,
        {"{{deployment}}": mean("jitney_step_items", BY)},
        "Models that work in steps: items that one step computed. If it is near `max_batch_size` and items wait, the "
        "model is full.",
    ),
    lines(
        "Steps and joins",
        "ops",
        8,
        {
            "steps {{deployment}}": rate("jitney_steps_total", BY),
            "joins {{deployment}}": rate("jitney_joins_total", BY),
        },
        "Models that work in steps: steps in a second, and items that joined. Few joins while items wait: running "
        "items are long.",
    ),
]

SATURATION = [
    lines(
        "Items waiting and running",
        "none",
        8,
        {
            "waiting": gauge("jitney_queued_items"),
            "running": gauge("jitney_running_items"),
            "in steps": gauge("jitney_active_items"),
            "paused": gauge("jitney_paused_items"),
        },
        "Items in the queue, with workers, in models that work in steps, and paused because their clients do not "
        "read. Many waiting and few running: see “Ready replicas”.",
    ),
    lines(
        "Age of the queue",
        "s",
        8,
        {
            "oldest {{deployment}}": gauge("jitney_oldest_item_seconds", BY, how="max"),
            "predicted wait {{deployment}}": gauge("jitney_predicted_wait_seconds", BY, how="max"),
        },
        "How long the oldest item has waited, and how long a new one would. Refusals begin when the predicted wait is "
        "above its limit (`max_wait_s`).",
    ),
    lines(
        "Asked for / can",
        "percentunit",
        8,
        {"{{deployment}}": asked_for(BY, DEPLOYMENTS, WINDOW)},
        "Work that arrives, divided by what the ready replicas can do. Above 100 % no batch size helps: add replicas. "
        "It is a good number to scale by: it rises before a queue does.",
        bad=1,
    ),
    lines(
        "Replicas busy",
        "percentunit",
        8,
        {"{{deployment}}": busy(BY)},
        "Share of the time that ready replicas spend in `predict`. Low while items wait: decoding, the link or the "
        "front is the limit, and more replicas do not help.",
        most=1,
    ),
    lines(
        "Fill of the queue",
        "percentunit",
        8,
        {
            "items {{deployment}}": ratio(gauge("jitney_queued_items", BY), gauge("jitney_max_queued_items", BY)),
            "bytes {{deployment}}": ratio(gauge("jitney_queued_bytes", BY), gauge("jitney_max_queued_bytes", BY)),
        },
        "Queue, as a share of `max_queued_items` and `max_queued_bytes`. At 100 % requests are refused. Raise the "
        "limit only if clients can wait that long.",
        bad=1,
        most=1,
    ),
    lines(
        "Arrivals",
        "ops",
        8,
        {"{{deployment}}": gauge("jitney_arrivals_per_second", BY)},
        "Items that arrive in a second, as learned. Compare it with “Items”: the difference is refused.",
    ),
    lines(
        "Lanes",
        "none",
        8,
        {"{{deployment}}": gauge("jitney_lanes", BY)},
        "Group keys that have waiting items. Many lanes make small batches: round the values in `group_by` to fewer "
        "ones.",
    ),
    lines(
        "Bytes held",
        "bytes",
        8,
        {
            "queued": gauge("jitney_queued_bytes"),
            "later": gauge("jitney_later_bytes"),
            "receiving": gauge("jitney_receiving_bytes", of=SERVERS),
            "untaken": gauge("jitney_untaken_bytes", of=SERVERS),
        },
        "Memory of requests and answers in the front: in the queue, of large requests whose turn has not come, of "
        "bodies that are being received, and of answers that clients have not taken. `untaken` grows: clients read "
        "slowly.",
    ),
    lines(
        "Connections",
        "none",
        8,
        {"{{instance}}": gauge("jitney_connections", "instance", of=SERVERS)},
        "Open connections of clients. If it only grows, clients open a connection for each request and do not close "
        "it.",
    ),
]

ROWS: Rows = {"Batches": BATCHES, "Queue and saturation": SATURATION}
