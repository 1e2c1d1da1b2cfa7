"""Runs a load against a server and puts together what both sides say of it."""

import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jitney_bench.options import Run
from jitney_bench.requests.protocols import Requests
from jitney_bench.server.address import Address, ServerError
from jitney_bench.server.site import Site
from jitney_bench.server.usage import Used, used_by

NOT_ACCEPTABLE = 406
STREAMED = ("text/event-stream", "application/x-ndjson", "application/jsonl")
"""Media types of answers in parts."""
Progress = Callable[[dict[str, Any]], None]
"""Sees each interval as the series of the document has it."""
_LABEL, _MODEL = "jitney_batches_total{reason=", "jitney_model_duration_seconds_sum"
"""Counters that are looked at."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured."""

    address: Address
    requests: Requests
    site: Site | None = None
    model: str | None = None
    pid: int | None = None
    """The front, if it was started for this."""

    def options(self) -> Mapping[str, Any] | None:
        """Return the options in force of the deployment; None where the server reports none."""
        return (self.site.config(self.model) or None) if self.site and self.model else None


def try_out(subject: Subject, timeout_s: float) -> None:
    """Send the first input once: what is refused once would be refused a thousand times."""
    content_type, body = subject.requests.bodies[0]
    path = subject.requests.path
    status, answer, media_type = subject.address.exchange("POST", path, body, content_type, timeout_s)
    is_known = subject.requests.stream in ("native", "openai")  # other servers may not say what they stream
    if is_known and 200 <= status < 300 and media_type.lower() not in STREAMED:
        raise ServerError(
            f"the first input is answered with {media_type or 'no media type'} at {subject.address.url}{path}, and not "
            "in parts (text/event-stream, application/x-ndjson): ask for parts in the body, or leave --stream away"
        )
    if not (200 <= status < 300 or status in (429, 503)):
        text = " ".join(answer.decode(errors="replace").split())[:500]
        hint = "; if the model does not answer in parts, leave --stream away" if status == NOT_ACCEPTABLE else ""
        raise ServerError(f"the first input is answered with {status} at {subject.address.url}{path}: {text}{hint}")


def measure(subject: Subject, run: Run, progress: Progress) -> dict[str, Any]:
    """Carry out one run; returns it as the document has it."""
    from jitney_bench import _generator  # noqa: PLC0415 - only here

    _allow_connections()
    plan = {
        "host": subject.address.host,
        "port": subject.address.port,
        "path": subject.requests.path,
        "headers": list(subject.address.headers),
        "items_per_request": subject.requests.items_per_request,
        "stream": subject.requests.stream,
        **run.to_dict(),
    }

    def on_interval(text: str) -> None:
        progress(json.loads(text))

    started = datetime.now(UTC)
    before = Side.look(subject)
    try:
        text = _generator.bench(json.dumps(plan), list(subject.requests.bodies), on_interval)
    except (OSError, ValueError) as error:
        raise ServerError(f"{subject.address.url} cannot be measured: {error}") from None
    gone = None
    try:
        after = Side.look(subject)
    except ServerError as error:  # what the client has measured is there all the same
        after, gone = Side(time.monotonic(), {}, None), str(error)
    return {
        "started": started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        **json.loads(text),
        "closed_by": after.closed_by(before),
        "server": after.since(before) | {"gone": gone},
    }


@dataclass(frozen=True, slots=True)
class Side:
    """The server's side at one instant."""

    at_s: float
    metrics: Mapping[str, float]
    used: Used | None

    @classmethod
    def look(cls, subject: Subject) -> "Side":
        """Look now."""
        metrics = subject.site.metrics(subject.model) if subject.site and subject.model else {}
        return cls(time.monotonic(), metrics, used_by(subject.pid) if subject.pid else None)

    def closed_by(self, before: "Side") -> dict[str, int] | None:
        """Count batches by the reason for which they were closed."""
        if self._began_anew(before):
            return None
        counts = {
            name.removeprefix(_LABEL).strip('"}'): int(value - before.metrics.get(name, 0))
            for name, value in self.metrics.items()
            if name.startswith(_LABEL)
        }
        return {reason: count for reason, count in counts.items() if count} if self.metrics else None

    def _began_anew(self, before: "Side") -> bool:
        """Whether the counters are of another server: one that was started again, or the next of several."""
        return any(
            value < before.metrics.get(name, 0.0)
            for name, value in self.metrics.items()
            if name.startswith(_LABEL) or name == _MODEL
        )

    def since(self, before: "Side") -> dict[str, Any]:
        """Say what was used between two instants; times as shares of the time between."""
        length_s = max(self.at_s - before.at_s, 1e-9)
        replicas = self.metrics.get("jitney_ready_replicas")
        busy = None
        if replicas and _MODEL in self.metrics and not self._began_anew(before):
            busy = (self.metrics[_MODEL] - before.metrics.get(_MODEL, 0.0)) / length_s / replicas
        front = cpu = resident = None
        if self.used and before.used:
            front = (self.used.front_cpu_s - before.used.front_cpu_s) / length_s
            cpu = (self.used.cpu_s - before.used.cpu_s) / length_s
            resident = self.used.resident_mb
        return {"model_busy": busy, "replicas": replicas, "cpu": cpu, "front_cpu": front, "resident_mb": resident}


def merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float] | None]:
    """Return the quantiles of all runs together, by name; None where nothing was counted."""
    parts = [run["parts"] for run in runs if run["parts"]]
    times = {"latency_ms": _together([run["latency_histogram_us"] for run in runs])}
    if parts:
        times["first_ms"] = _together([one["first_histogram_us"] for one in parts])
        times["gap_ms"] = _together([one["gap_histogram_us"] for one in parts])
    return times


def _together(histograms: Sequence[str]) -> dict[str, float] | None:
    from jitney_bench import _generator  # noqa: PLC0415 - see `measure`

    _, quantiles, _ = json.loads(_generator.merge_histograms(histograms))
    return quantiles


def _allow_connections() -> None:
    """As many sockets as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def error_share(run: Mapping[str, Any]) -> float:
    """Return the share of what was asked that was refused or failed: of all requests, or of the items answered."""
    requests, items_failed = run["requests"], run["items_failed"]
    of_requests = (requests["refused"] + requests["failed"]) / max(requests["due"], 1)
    return max(of_requests, items_failed / max(run["items_answered"] + items_failed, 1))
