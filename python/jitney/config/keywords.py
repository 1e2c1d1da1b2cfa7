"""Options as keyword arguments, with their types: an editor completes them, and a type checker knows them.

The tables in `options` are what counts at run time. A test compares both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class DeploymentKeywords(TypedDict, total=False):
    """The options of a deployment, as `@jitney.deployment(...)` takes them."""

    max_batch_size: int
    max_batch_cost: int | None
    policy: Literal["auto", "eager", "fixed"] | None
    max_batch_delay_ms: float
    latency_target_ms: float | None
    replicas: int
    min_replicas: int | None
    max_replicas: int | None
    scale_down_after_s: float | None
    min_ready_replicas: int
    devices: str | Sequence[str]
    backend: Literal["local", "joined", "ray", "any"] | None
    num_cpus: float
    num_gpus: float
    resources: str | Sequence[str]
    node_labels: str | Sequence[str]
    runtime_env: str | Mapping[str, Any] | None
    spread: bool
    openai_names: str | Sequence[str]
    max_queued_items: int
    max_queued_bytes: int
    max_wait_s: float | None
    request_timeout_s: float
    stream_timeout_s: float
    batch_timeout_s: float
    load_timeout_s: float
    check_interval_s: float
    context_headers: str | Sequence[str]
    priority_boost_s: float
    retry: bool
    batched: bool
    max_pixels: int
    max_answer_bytes: int


class ServerKeywords(TypedDict, total=False):
    """The options of a server, as `jitney.serve(...)` takes them."""

    listen: str | Sequence[str]
    tls_cert: str | None
    tls_key: str | None
    listen_programs: str | Sequence[str]
    workers_listen: str | Sequence[str]
    workers_secret_file: str | None
    workers_tls: str
    allow_plain_workers: bool
    workers_advertise: str | None
    ray_address: str | None
    ray_namespace: str
    ray_listen: str | None
    local: int | None
    allow_unauthenticated: bool
    api_keys_file: str | None
    compress_from_bytes: int
    open_metrics: bool
    show_errors: bool
    cors_origin: str | Sequence[str]
    max_body_bytes: int
    max_receiving_bytes: int
    max_connections: int
    header_timeout_s: float
    body_timeout_s: float
    idle_timeout_s: float
    drain_grace_s: float
    drain_timeout_s: float
    log_format: Literal["text", "json"]
    log_level: Literal["error", "warn", "info", "debug", "trace"]
    access_log: float
    trace_slow_ms: float | None
