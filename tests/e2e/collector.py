"""A collector of traces for tests: it takes OTLP over HTTP and decodes it with the official messages."""

import gzip
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness import until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # pyright: ignore[reportMissingTypeStubs]
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PROMPT = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""Traces leave soon: a test need not wait for five seconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span, as a test reads it."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    events: tuple[str, ...]
    status: int
    state: str
    resource: Mapping[str, Any] = field(hash=False)

    @property
    def length(self) -> int:
        return self.end - self.start


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def read(message: bytes) -> Iterator[Span]:
    """Decode one message."""
    request: Any = ExportTraceServiceRequest.FromString(message)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _values(span.attributes),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    tuple(event.name for event in span.events),
                    span.status.code,
                    span.trace_state,
                    _values(resource.resource.attributes),
                )


class Collector:
    """Takes what is sent. A test may make it slow, or make it refuse."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: list[Mapping[str, str]] = []
        self.refusals: list[tuple[int, Mapping[str, str]]] = []
        """Status and headers of the next answers; after these everything is taken."""
        self.rejects = 0
        """Spans of each message that it says it did not take."""
        self.delay_s = 0.0
        self.is_closed = False
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, **PROMPT}

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["content-length"]))
        time.sleep(self.delay_s)
        with self._lock:
            self.headers.append(dict(request.headers))
            # An empty message asks whether the collector is there.
            refusal = self.refusals.pop(0) if self.refusals and body else None
            if refusal is None:
                is_packed = request.headers.get("content-encoding") == "gzip"
                self.spans.extend(read(gzip.decompress(body) if is_packed else body))
        status, headers = refusal or (200, {})
        taken: Any = ExportTraceServiceResponse()
        if self.rejects and body:
            taken.partial_success.rejected_spans = self.rejects
            taken.partial_success.error_message = "too old"
        answer: bytes = taken.SerializeToString() if refusal is None else b"no"
        request.send_response(status)
        request.send_header("content-length", str(len(answer)))
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(answer)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._server.shutdown()
            self._server.server_close()

    def wait(self, condition: Callable[[Span], bool], count: int = 1) -> list[Span]:
        """Wait until so many spans have come that are like this, and return them."""

        def found() -> list[Span]:
            with self._lock:
                like = [span for span in self.spans if condition(span)]
            return like if len(like) >= count else []

        return until(found, f"{count} such spans come")

    def request(self, request_id: str) -> "Trace":
        """Wait for the span of the request that has this id, and return its trace."""
        root = self.wait(lambda span: span.attributes.get("jitney.request_id") == request_id)[0]
        with self._lock:
            return Trace(root, [span for span in self.spans if span.trace == root.trace])

    def knows(self, request_id: str) -> bool:
        with self._lock:
            return any(span.attributes.get("jitney.request_id") == request_id for span in self.spans)


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one request."""

    root: Span
    spans: list[Span]

    def children(self, of: Span | None = None) -> list[Span]:
        parent = self.root if of is None else of
        return sorted((span for span in self.spans if span.parent == parent.span), key=lambda span: span.start)

    def names(self, of: Span | None = None) -> list[str]:
        return [span.name for span in self.children(of)]

    def one(self, name: str, of: Span | None = None) -> Span:
        (found,) = (span for span in self.children(of) if span.name == name)
        return found


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector for one test."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()
