"""Workers, and the machine that they are on."""

from monitoring.panels import Rows, bars, lines, stack
from monitoring.queries import DEPLOYMENTS, READY, SERVERS, WINDOW, gauge, quantile, rate, ratio

BY = ("deployment", "replica", "instance")
NAME = "{{deployment}}/{{replica}} {{instance}}"
GPU = "GPU {{gpu}} {{instance}}"
OF_WORKERS = "deployment, cause"


def grown(series: str, by: str, where: str = "") -> str:
    """Count how often something happened in a window; nothing is shown where it did not."""
    return f"sum by ({by}) (increase({series}{{{DEPLOYMENTS}{where}}}[{WINDOW}])) > 0"


WORKERS = [
    lines(
        "Ready replicas",
        "none",
        8,
        {
            "ready {{deployment}}": gauge(READY, "deployment"),
            "wanted {{deployment}}": gauge("jitney_wanted_replicas", "deployment"),
        },
        "Replicas that are loaded and answer, and how many there should be. If fewer are ready than wanted for long, "
        "see “States of replicas” and the log.",
    ),
    stack(
        "States of replicas",
        "none",
        8,
        {"{{state}}": f"{gauge('jitney_replicas', 'state')} > 0"},
        "What the replicas do: load, answer, pause after a crash (`backing_off`), wait for a place (`waiting`), end. "
        "`given_up`: the log has the reason, and a restart of the server tries again.",
    ),
    bars(
        "Workers lost",
        "none",
        8,
        {"{{deployment}} {{cause}}": grown("jitney_workers_lost_total", OF_WORKERS)},
        "Workers that were lost or replaced. `died` with signal 9 in the log is often the kernel: out of memory. "
        "`hung`: a batch took longer than `batch_timeout_s`. `renewed` is a reload and harmless.",
    ),
    lines(
        "Memory of workers",
        "bytes",
        8,
        {NAME: gauge("jitney_worker_resident_bytes", *BY)},
        "Resident memory of each worker. A line that only rises is a leak of the model: restart the worker before the "
        "kernel ends it, and look for lists that grow.",
    ),
    lines(
        "CPU of workers (cores)",
        "none",
        8,
        {NAME: rate("jitney_worker_cpu_seconds_total", *BY)},
        "Cores that each worker uses. All cores used by few replicas: set the number of threads (guide, "
        "“Troubleshooting”).",
    ),
    lines(
        "Workers busy",
        "percentunit",
        8,
        {NAME: rate("jitney_worker_busy_seconds_total", *BY)},
        "Share of the time in which each worker had a batch. One that is much lower than its neighbours is slow to "
        "get work, or was just started.",
    ),
    lines(
        "Batches of workers",
        "ops",
        8,
        {NAME: rate("jitney_worker_batches_total", *BY)},
        "Batches that each worker finished in a second. A worker that has none while others do is hung, or too slow "
        "to be given any.",
    ),
    lines(
        "Time without progress",
        "s",
        8,
        {NAME: gauge("jitney_worker_without_progress_seconds", *BY, how="max")},
        "Seconds since a worker that has a batch last finished one, made a step or sent a part. A line that rises is a "
        "call of `predict` that hangs; it ends at `batch_timeout_s`.",
    ),
    lines(
        "Seconds for an item",
        "s",
        8,
        {NAME: ratio(rate("jitney_worker_busy_seconds_total", *BY), rate("jitney_worker_items_total", *BY))},
        "Time of each worker for an item. Replicas of one deployment should be equal. One that is slower has a slower "
        "device, or a busy neighbour.",
    ),
    lines(
        "Speed of replicas",
        "none",
        8,
        {"{{deployment}}/{{replica}}": gauge("jitney_replica_speed", "deployment", "replica", how="min")},
        "Speed of each replica as learned: 1 is the median of its deployment, 0.1 takes ten times as long. Slow "
        "replicas get fewer items. Nothing is shown where all are equal.",
    ),
    lines(
        "Round trips to other machines",
        "s",
        8,
        {"{{deployment}}/{{replica}}": gauge("jitney_link_round_trip_seconds", "deployment", "replica", how="max")},
        "The way to each replica on another machine and back, without bytes, as measured. Nothing is shown of replicas "
        "on the machine of the front.",
    ),
    lines(
        "Bandwidth to other machines",
        "Bps",
        8,
        {"{{deployment}}/{{replica}}": gauge("jitney_link_bytes_per_second", "deployment", "replica", how="min")},
        "What the link to each replica on another machine carries, there and back, as measured with batches of 1 MB or "
        "more; 0 while there was none. Little of it makes large batches take long: see “Where the time goes”.",
    ),
    bars(
        "Starts of workers",
        "none",
        8,
        {"{{deployment}}": grown("jitney_worker_starts_total", "deployment")},
        "Workers that were started. Without a change in the number of replicas each start follows a loss: see "
        "“Workers lost”.",
    ),
    lines(
        "Time to load",
        "s",
        8,
        {NAME: gauge("jitney_worker_load_seconds", *BY)},
        "Seconds that each worker took to load and warm up its model. This is how long a lost replica is missing. Put "
        "weights on a local disk if it is long.",
    ),
    lines(
        "Age of workers",
        "s",
        8,
        {NAME: f"time() - {gauge('jitney_worker_start_time_seconds', *BY, how='max')}"},
        "How long ago each worker was started. Lines that fall to 0 are restarts.",
    ),
    lines(
        "GPU memory of workers",
        "bytes",
        8,
        {NAME: gauge("jitney_worker_gpu_memory_bytes", *BY)},
        "Memory of each worker on its GPU, as the driver says. If it is near that of the GPU, lower "
        "`max_batch_size`, or the cache of the framework.",
    ),
    lines(
        "Threads of workers",
        "none",
        8,
        {NAME: gauge("jitney_worker_threads", *BY)},
        "Threads of each worker. If it only rises, the model starts threads and does not end them.",
    ),
]

DOCKER = 'name=~".*jitney.*"'
KUBERNETES = 'container=~".*jitney.*", name=""'


def container(series: str) -> dict[str, str]:
    """Add up a counter of cadvisor, whose labels differ between Docker and Kubernetes."""
    return {
        "{{name}}": f"sum by (name) (rate({series}{{{DOCKER}}}[{WINDOW}]))",
        "{{pod}}": f"sum by (pod) (rate({series}{{{KUBERNETES}}}[{WINDOW}]))",
    }


MEMORY = "container_memory_working_set_bytes"
THROTTLED = "container_cpu_cfs_throttled_seconds_total"
MACHINE = [
    lines(
        "CPU of the front (cores)",
        "none",
        8,
        {"{{instance}}": f"sum by (instance) (rate(process_cpu_seconds_total{{{SERVERS}}}[{WINDOW}]))"},
        "Cores that the front uses: protocols, the queue, the links. Near the number of cores of the machine: use "
        "another server, since one front is the limit.",
    ),
    lines(
        "Memory of the front",
        "bytes",
        8,
        {"{{instance}}": gauge("process_resident_memory_bytes", "instance", of=SERVERS)},
        "Resident memory of the front. It follows “Bytes held”; if it rises without them, report it.",
    ),
    lines(
        "Lag of the front, p99",
        "s",
        8,
        {"{{instance}}": quantile(99, "jitney_front_lag_seconds", "instance", of=SERVERS)},
        "How much too late the front woke from a sleep, usually because other processes use all cores. Above 10 ms: "
        "give it a core, or lower the threads of workers.",
    ),
    lines(
        "Open files of the front",
        "percentunit",
        8,
        {
            "{{instance}}": ratio(
                gauge("process_open_fds", "instance", of=SERVERS), gauge("process_max_fds", "instance", of=SERVERS)
            )
        },
        "Open files and connections, as a share of the limit (`ulimit -n`). At 100 % new connections fail: raise the "
        "limit.",
        bad=0.8,
        most=1,
    ),
    lines(
        "Memory left",
        "bytes",
        8,
        {"{{instance}}": gauge("jitney_available_memory_bytes", "instance", of=SERVERS)},
        "Memory that processes of the machine, or of the front's container, can still take. Near 0 the kernel ends the "
        "process that needs most: see “Memory of workers”.",
    ),
    lines(
        "Threads of the front",
        "none",
        8,
        {"{{instance}}": gauge("process_threads", "instance", of=SERVERS)},
        "Threads of the front. It is constant after the start.",
    ),
    lines(
        "CPU of containers (cores)",
        "none",
        8,
        container("container_cpu_usage_seconds_total"),
        "cadvisor: cores that containers use whose name has `jitney` in it, in Docker or Kubernetes.",
    ),
    lines(
        "Memory of containers",
        "bytes",
        8,
        {"{{name}}": f"sum by (name) ({MEMORY}{{{DOCKER}}})", "{{pod}}": f"sum by (pod) ({MEMORY}{{{KUBERNETES}}})"},
        "cadvisor: memory that counts for the limit of the container. At the limit the kernel ends a worker: “Workers "
        "lost” shows `died`.",
    ),
    lines(
        "Throttling of containers",
        "percentunit",
        8,
        container(THROTTLED),
        "cadvisor: seconds in a second for which a container was kept from its CPU. Above a few percent the latency "
        "suffers: raise the CPU limit, or lower the threads of workers.",
        bad=0.1,
    ),
    lines(
        "CPU of the machine",
        "percentunit",
        8,
        {"{{instance}}": f'1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[{WINDOW}]))'},
        "node-exporter: share of all cores that is used. At 100 % all phases become slower together.",
        most=1,
    ),
    lines(
        "Memory of the machine",
        "percentunit",
        8,
        {
            "{{instance}}": "1 - sum by (instance) (node_memory_MemAvailable_bytes) / sum by (instance) "
            "(node_memory_MemTotal_bytes)"
        },
        "node-exporter: share of the memory that is used. Near 100 % the kernel ends processes.",
        bad=0.95,
        most=1,
    ),
    lines(
        "Pressure on the machine",
        "percentunit",
        8,
        {
            "CPU {{instance}}": f"sum by (instance) (rate(node_pressure_cpu_waiting_seconds_total[{WINDOW}]))",
            "memory {{instance}}": f"sum by (instance) (rate(node_pressure_memory_waiting_seconds_total[{WINDOW}]))",
            "disk {{instance}}": f"sum by (instance) (rate(node_pressure_io_waiting_seconds_total[{WINDOW}]))",
        },
        "node-exporter: share of the time in which some process waited for a core, memory or the disk. CPU pressure "
        "is the usual cause of a long tail of latencies.",
    ),
    lines(
        "GPU busy",
        "percent",
        8,
        {
            "GPU {{gpu}} {{Hostname}}": "avg by (gpu, Hostname) (DCGM_FI_DEV_GPU_UTIL)",
            GPU: f"{gauge('jitney_gpu_utilization_ratio', 'gpu', 'instance', how='avg', of=SERVERS)} * 100",
        },
        "dcgm-exporter: share of the time in which at least one kernel ran. It says little about how full the GPU is: "
        "compare “SM active” and “Replicas busy”.",
        most=100,
    ),
    lines(
        "SM active",
        "percentunit",
        8,
        {
            "GPU {{gpu}} {{Hostname}}": "avg by (gpu, Hostname) (DCGM_FI_PROF_SM_ACTIVE)",
            "GPU {{gpu}} {{Hostname}} engine": "avg by (gpu, Hostname) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
        },
        "dcgm-exporter: share of the multiprocessors that had work, and of the time in which the engine had any. Low "
        "while items wait: batches are too small for this GPU. `DCGM_FI_PROF_SM_ACTIVE` is in its list of counters as "
        "a comment.",
        most=1,
    ),
    lines(
        "GPU memory",
        "bytes",
        8,
        {
            "GPU {{gpu}} {{Hostname}}": "sum by (gpu, Hostname) (DCGM_FI_DEV_FB_USED) * 1048576",
            GPU: gauge("jitney_gpu_memory_used_bytes", "gpu", "instance", of=SERVERS),
            GPU + " total": gauge("jitney_gpu_memory_total_bytes", "gpu", "instance", of=SERVERS),
        },
        "dcgm-exporter: memory in use, of all processes. If it is full, batches are split (`out_of_memory` in “Work "
        "done again”).",
    ),
    lines(
        "Power of GPUs",
        "watt",
        8,
        {
            "GPU {{gpu}} {{Hostname}}": "avg by (gpu, Hostname) (DCGM_FI_DEV_POWER_USAGE)",
            GPU: gauge("jitney_gpu_power_watts", "gpu", "instance", how="avg", of=SERVERS),
        },
        "dcgm-exporter: power that each GPU draws. Half of its limit under full load means that the GPU waits.",
    ),
    lines(
        "Energy for an item",
        "joule",
        8,
        {
            "{{instance}}": ratio(
                rate("jitney_gpu_energy_joules_total", "instance", of=SERVERS),
                rate("jitney_batch_items_sum", "instance"),
            )
        },
        "Energy that the GPUs of a server used, divided by its items. It falls when batches are larger.",
    ),
    lines(
        "Temperature of GPUs",
        "celsius",
        8,
        {GPU: gauge("jitney_gpu_temperature_celsius", "gpu", "instance", how="max", of=SERVERS)},
        "Temperature of each GPU. Above its limit (often 85 to 90 °C) it lowers its clock, and `predict` becomes "
        "slower.",
    ),
    lines(
        "Traces",
        "ops",
        8,
        {"{{end}}": rate("jitney_traces_total", "end", of=SERVERS)},
        "Traces that were sent to the collector, dropped because a queue was full, or failed. If they fail, see "
        "whether the collector of OTEL_EXPORTER_OTLP_ENDPOINT answers.",
    ),
]

ROWS: Rows = {"Workers": WORKERS, "Machine": MACHINE}
