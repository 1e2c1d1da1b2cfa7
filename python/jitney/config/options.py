"""The tables of options: each one once, with type, default, unit and meaning.

Flags, environment variables, file keys and the reference page follow from these tables. `layers` says where values come
from, `option` how a value is checked.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast, get_type_hints

from jitney.config.option import Option

_MEBIBYTE: Final = 1024 * 1024
_U32: Final = 2**32 - 1
AUTO: Final = "auto"
"""Among `devices`: the accelerators that a worker finds on its machine."""
_MOST_REPLICAS: Final = 1024
"""A replica is a process with an interpreter: a typing error must not exhaust the machine."""
_I64: Final = 2**63 - 1
_LONGEST: Final = {"s": 365 * 86_400, "ms": 365 * 86_400_000}
"""Upper bound of all times, a year by unit: sums of larger times would overflow."""


def _option(  # noqa: PLR0913 -- the columns of a row, all optional
    default: object,
    meaning: str,
    *,
    unit: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    in_code_only: bool = False,
    is_json: bool = False,
) -> Any:
    row = {"meaning": meaning, "unit": unit, "minimum": at_least, "maximum": at_most, "above": above}
    more = {"choices": choices, "in_code_only": in_code_only, "is_json": is_json}
    return field(default=default, metadata={**row, **more})


def _length(
    default: float | None, meaning: str, *, unit: str = "s", at_least: float | None = None, above: float | None = None
) -> Any:
    return _option(default, meaning, unit=unit, at_least=at_least, above=above, at_most=_LONGEST[unit])


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """The options of one deployment, in force. `policy` is never None here: see `__post_init__`."""

    max_batch_size: int = _option(32, "most items in one batch", unit="items", at_least=1, at_most=_U32)
    max_batch_cost: int | None = _option(
        None,
        "most cost units in one batch; an item that costs more runs in a batch of one",
        unit="cost units",
        at_least=1,
        at_most=_I64,
    )
    policy: str | None = _option(
        None,
        "when to launch a batch: `auto` when waiting longer would not pay, learned from durations of batches and "
        "arrivals of requests; `eager` as soon as a replica is free; `fixed` after max_batch_delay_ms; default: "
        "`fixed` if that delay is above 0, else `auto`",
        choices=("auto", "eager", "fixed"),
    )
    max_batch_delay_ms: float = _length(
        0.0,
        "longest wait of the oldest item until its batch is launched, with policy `fixed`; 0 with the others",
        unit="ms",
        at_least=0,
    )
    latency_target_ms: float | None = _length(
        None,
        "target for the time from arrival to answer: batches are formed so that as many answers as possible meet it, "
        "and a request that would miss it is refused on arrival with `would_be_late`; default: no target, the lowest "
        "mean latency",
        unit="ms",
        above=0,
    )
    replicas: int = _option(1, "loaded copies of the model", unit="replicas", at_least=1, at_most=_MOST_REPLICAS)
    min_replicas: int | None = _option(
        None, "fewest loaded copies, if their number follows the load; 0 unloads a model that is not used; default: "
        "as many as `replicas`", unit="replicas", at_least=0, at_most=_MOST_REPLICAS,
    )  # fmt: skip
    max_replicas: int | None = _option(
        None, "most loaded copies: above min_replicas, their number follows the load, and `replicas` is the number at "
        "the start; default: as many as `replicas`", unit="replicas", at_least=1, at_most=_MOST_REPLICAS,
    )  # fmt: skip
    scale_down_after_s: float | None = _length(
        None,
        "time for which a copy stays after it was needed; default: four times as long as a start takes, 20 s to 600 s",
        at_least=0,
    )
    min_ready_replicas: int = _option(
        1, "loaded copies that a deployment needs to count as ready, after the first start", unit="replicas",
        at_least=1, at_most=_MOST_REPLICAS,
    )  # fmt: skip
    devices: tuple[str, ...] = _option(
        (), "devices that the replicas get in turn, as in cuda:0,cuda:1; `auto` stands for those that a worker finds"
    )
    backend: str | None = _option(
        None,
        "where replicas run: `local` on the machine of the front; `joined` at agents (`jitney worker`); `ray` on a Ray "
        "cluster; `any` on the machine of the front as far as there is room, else elsewhere; "
        "default: `ray` with ray_address, `any` with workers_listen, else `local`",
        choices=("local", "joined", "ray", "any"),
    )
    num_cpus: float = _option(
        1.0, "cores that a place at an agent or in a Ray cluster must have", unit="cores", at_least=0, at_most=4096
    )
    num_gpus: float = _option(
        0.0,
        "devices that a place at an agent or in a Ray cluster must have; the replica gets them all; below 1 (with Ray) "
        "several replicas share a device",
        unit="devices",
        at_least=0,
        at_most=1024,
    )
    resources: tuple[str, ...] = _option(
        (),
        "what the machine must have of other things, as in tpu=4; agents say it with --resources, a Ray cluster has it "
        "as custom resources",
    )
    node_labels: tuple[str, ...] = _option(
        (), "labels that the machine of an agent, or the node of a Ray cluster, must have, as in zone=a"
    )
    runtime_env: str | None = _option(
        None, "runtime environment of the replicas in a Ray cluster, passed on to Ray: a JSON object",
        is_json=True,
    )  # fmt: skip
    spread: bool = _option(
        True, "whether replicas are on as many machines as possible; if not, they fill one machine after the other"
    )
    openai_names: tuple[str, ...] = _option(
        (), "further names of the model for OpenAI clients, as in BAAI/bge-small-en-v1.5,text-embedding-3-small"
    )
    max_queued_items: int = _option(4096, "most items in the queue", unit="items", at_least=1, at_most=_I64)
    max_queued_bytes: int = _option(256 * _MEBIBYTE, "most bytes in the queue", unit="bytes", at_least=1, at_most=_I64)
    max_wait_s: float | None = _length(
        None,
        "longest predicted wait in the queue; a request that would wait longer is refused on arrival; default: ten "
        "full batches (two and a half in overload), at least half a second, at most half of the request's timeout; "
        "cannot be combined with latency_target_ms",
        at_least=0,
    )
    request_timeout_s: float = _length(60.0, "timeout of a request that sets none", above=0)
    stream_timeout_s: float = _length(
        600.0,
        "timeout of an answer that comes in parts, from the arrival of its request, once the first part was there; the "
        "first part must come within request_timeout_s; a timeout that the client set is for the whole",
        above=0,
    )
    batch_timeout_s: float = _length(
        60.0,
        "longest run of a batch; its worker is then killed as hung; each part of an answer starts it again; with "
        "`async def` and batched=False, the longest silence of one item, which then fails",
        above=0,
    )
    load_timeout_s: float = _length(600.0, "longest time to load and warm up a model", above=0)
    check_interval_s: float = _length(
        10.0, "shortest time between two calls of the model's own `check`, while no batch runs", above=0
    )
    context_headers: tuple[str, ...] = _option(
        (), "headers of requests that the model may read in `jitney.context().requests`, as in x-tenant,accept-language"
    )
    priority_boost_s: float = _length(1.0, "advantage of one priority over the next, as time in the queue", at_least=0)
    retry: bool = _option(True, "whether `predict` may run again on the same item; if not, items of a lost worker fail")
    batched: bool = _option(True, "whether `predict` takes a batch; if not, one item at a time", in_code_only=True)
    max_pixels: int = _option(
        16 * _MEBIBYTE,
        "most pixels of all images of an item together (4096 x 4096); a decoded pixel takes up to 4 bytes, and a whole "
        "batch is decoded before `predict`",
        unit="pixels",
        at_least=1,
        at_most=_I64,
    )
    max_answer_bytes: int = _option(
        64 * _MEBIBYTE,
        "most bytes that the model may answer to one item; an item with a larger answer fails alone (500)",
        unit="bytes",
        at_least=1,
        at_most=_I64,
    )

    def __post_init__(self) -> None:
        if self.policy is None:
            object.__setattr__(self, "policy", "fixed" if self.max_batch_delay_ms > 0 else "auto")
        object.__setattr__(self, "context_headers", tuple(name.lower() for name in self.context_headers))

    def replica_bounds(self) -> tuple[int, int]:
        """Return the fewest and the most replicas."""
        least = self.replicas if self.min_replicas is None else self.min_replicas
        return least, max(least, self.replicas if self.max_replicas is None else self.max_replicas)

    def first_replicas(self) -> int:
        """Return the number of replicas at the start; one shows that the model can be loaded."""
        least, most = self.replica_bounds()
        return max(1, min(max(self.replicas, least), most))

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON has them."""
        return _as_json(self)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of the server, in force."""

    listen: tuple[str, ...] = _option(("tcp:127.0.0.1:8000",), "where to listen: tcp:HOST:PORT or unix:PATH")
    tls_cert: str | None = _option(
        None,
        "PEM file with the certificates of this server, its own first: TCP addresses of `listen` then speak HTTPS "
        "only; needs tls_key; read again when it changes",
    )
    tls_key: str | None = _option(None, "PEM file with the key of tls_cert")
    listen_programs: tuple[str, ...] = _option(
        (), "where to listen for programs that use jitney.connect: unix:PATH, or tcp:HOST:PORT, which needs a key"
    )
    workers_listen: tuple[str, ...] = _option(
        (), "where agents (`jitney worker`) and their workers connect: tcp:HOST:PORT; needs workers_secret_file"
    )
    workers_secret_file: str | None = _option(
        None, "file with the secret that the front and its agents share; `jitney secret PATH` writes one"
    )
    workers_tls: str = _option(
        "auto",
        "how connections of agents and workers are protected: `auto` is TLS with keys that come from the secret; `off` "
        "does not encrypt; CERT,KEY[,CA] is TLS with certificates of yours (PEM files); agents need the same",
    )
    allow_plain_workers: bool = _option(
        False, "with workers_tls `off`, let agents and workers connect from other machines, for networks that encrypt"
    )
    workers_advertise: str | None = _option(
        None, "address at which workers of other machines connect, as tcp:HOST:PORT; default: what their agent dialled"
    )
    ray_address: str | None = _option(
        None, "Ray cluster in which replicas run: HOST:PORT, ray://HOST:PORT, or `auto` for the one of this machine"
    )
    ray_namespace: str = _option("jitney", "Ray namespace of the actors that host replicas")
    ray_listen: str | None = _option(
        None,
        "where replicas in the Ray cluster connect, as tcp:HOST:PORT; default: a free port of this machine's address "
        "in the cluster",
    )
    local: int | None = _option(
        None, "most workers on the machine of the front; 0 leaves all of them to agents; default: no limit",
        unit="workers", at_least=0, at_most=_U32,
    )  # fmt: skip
    allow_unauthenticated: bool = _option(False, "listen on other addresses than loopback without API keys")
    api_keys_file: str | None = _option(
        None,
        "file of API keys, one per line, read again when it changes; with it, or with JITNEY_API_KEYS (separated by "
        "commas), every route except the probes needs a key",
    )
    compress_from_bytes: int = _option(
        65_536,
        "text and JSON answers from this size on are compressed for clients that accept gzip or deflate, as most HTTP "
        "libraries do; 0: never; pages such as /metrics always are",
        unit="bytes",
        at_least=0,
        at_most=_I64,
    )
    open_metrics: bool = _option(False, "answer /metrics without a key")
    show_errors: bool = _option(
        False, "send clients what a model's exceptions say, and not only the log; on with --reload"
    )
    cors_origin: tuple[str, ...] = _option(
        (), "origins of web pages that may send requests, as in https://example.org; * for all"
    )
    max_body_bytes: int = _option(64 * _MEBIBYTE, "largest body of a request", unit="bytes", at_least=1, at_most=_I64)
    max_receiving_bytes: int = _option(
        512 * _MEBIBYTE,
        "most memory that bodies being received may hold together, half of it those that begin, and again answers that "
        "clients have not taken",
        unit="bytes",
        at_least=1,
        at_most=_I64,
    )
    max_connections: int = _option(
        32768, "most open connections; further ones wait to be accepted", unit="connections", at_least=1, at_most=_U32
    )
    header_timeout_s: float = _length(10.0, "longest time until the header of a request is complete", above=0)
    body_timeout_s: float = _length(
        20.0,
        "time in which a body must bring 512 bytes per second, and a client must take some of its answers",
        above=0,
    )
    idle_timeout_s: float = _length(75.0, "time after which a connection without a request is closed", above=0)
    drain_grace_s: float = _length(0.0, 'time between "not ready" and "stop accepting" at shutdown', at_least=0)
    drain_timeout_s: float = _length(30.0, "longest time to finish in-flight requests at shutdown", at_least=0)
    log_format: str = _option("text", "format of log lines", choices=("text", "json"))
    log_level: str = _option(
        "info", "lowest level of log lines that are written", choices=("error", "warn", "info", "debug", "trace")
    )
    access_log: float = _option(
        0.0, "share of requests that have a line in the access log, evenly spread: 0 none, 1 all", at_least=0, at_most=1
    )
    trace_slow_ms: float | None = _length(
        None,
        "keep a trace of requests that take longer, and of those that fail by the fault of model or server, whatever "
        "the sampler says; at most 20 a second, shown at /trace/ID by the id of the request or of the trace",
        unit="ms",
        at_least=0,
    )

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON has them."""
        return _as_json(self)


def _as_json(options: DeploymentOptions | ServerOptions) -> dict[str, object]:
    values = {row.name: getattr(options, row.name) for row in dataclasses.fields(options)}
    return {
        name: list(cast("tuple[str]", value)) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _table(kind: type) -> dict[str, Option]:
    types = get_type_hints(kind)
    return {
        row.name: Option(name=row.name, type=types[row.name], default=row.default, **row.metadata)
        for row in dataclasses.fields(kind)
    }


@cache
def deployment_options() -> dict[str, Option]:
    """Return the table of a deployment's options, by name, in order."""
    return _table(DeploymentOptions)


@cache
def server_options() -> dict[str, Option]:
    """Return the table of the server's options, by name, in order."""
    return _table(ServerOptions)
