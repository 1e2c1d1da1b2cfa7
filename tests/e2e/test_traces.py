"""Traces: what a collector gets of requests and batches, over every protocol and whatever happens to it."""

import json
from collections.abc import Iterator

import pytest
from collector import Collector, collecting
from harness import Serve, Server, serving

SERVER = 2
ERROR = 2


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    """One that traces everything, for all tests that change nothing."""
    with serving(tmp_path_factory, "composed.py", environment=collector.environment) as server:
        yield server


def test_the_phases_of_a_request_add_up(server: Server, collector: Collector) -> None:
    assert server.post("/base", "a", {"x-request-id": "phases"}).json() == "<a>"
    trace = collector.request("phases")
    root = trace.root
    assert (root.name, root.kind, root.parent, root.status) == ("POST /base", SERVER, "", 0)
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["http.route"] == "/base"
    assert root.resource["service.name"] == "jitney"
    assert trace.names() == ["receive", "queue", "batch", "render"]
    phases = trace.children()
    assert phases[0].start == root.start
    assert phases[-1].end == root.end
    assert all(before.end == after.start for before, after in zip(phases, phases[1:], strict=False))
    assert sum(phase.length for phase in phases) == root.length
    batch = trace.one("batch")
    stages = trace.children(batch)
    assert [stage.name for stage in stages] == ["decode", "predict", "encode"]
    assert stages[0].start >= batch.start
    assert stages[-1].end <= batch.end
    assert all(before.end <= after.start for before, after in zip(stages, stages[1:], strict=False))
    found = json.loads(server.get("/trace/phases").body)
    shown = [span["spanId"] for span in found["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert {span.span for span in trace.spans} <= set(shown)
