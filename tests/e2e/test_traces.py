"""Traces: what a collector gets of requests and batches, over every protocol and whatever happens to it."""

# pyright: basic, reportMissingTypeStubs=false, reportAttributeAccessIssue=false

import itertools
from collections.abc import Iterator

import grpc
import jitney
import prometheus_client.openmetrics.parser
import pytest
from collector import Collector, Trace, collecting
from harness import Serve, Server, serving, until
from opentelemetry import trace as otel
from tritonclient.grpc import service_pb2, service_pb2_grpc

SERVER = 2
ERROR = 2
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-00"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"unix:{tmp_path_factory.mktemp('programs')}/models"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector, place: str) -> Iterator[Server]:
    """One that traces everything, for all tests that change nothing."""
    environment = {**collector.environment, "OTEL_SERVICE_NAME": "models"}
    arguments = ("--listen-programs", place)
    with serving(tmp_path_factory, "traced.py", arguments=arguments, environment=environment) as server:
        yield server


def assert_adds_up(trace: Trace) -> None:
    """The phases of a request meet, fill it, and have their own parts inside."""
    phases = trace.children()
    assert phases[0].start == trace.root.start
    assert phases[-1].end == trace.root.end
    assert all(before.end == after.start for before, after in itertools.pairwise(phases))
    for phase in phases:
        parts = trace.children(phase)
        assert all(phase.start <= part.start <= part.end <= phase.end for part in parts)
        assert all(before.end <= after.start for before, after in itertools.pairwise(parts))


def context(trace: Trace, batch: str = "batch") -> str:
    """The context that `predict` should have got."""
    predict = trace.one("predict", trace.one(batch))
    return f"00-{trace.root.trace}-{predict.span}-01"


def test_the_phases_of_a_request_add_up(server: Server, collector: Collector) -> None:
    own = server.post("/telling", "a", {"x-request-id": "phases"}).json()
    trace = collector.request("phases")
    root = trace.root
    assert (root.name, root.kind, root.parent, root.status) == ("POST /telling", SERVER, "", 0)
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["http.route"] == "/telling"
    assert root.attributes["jitney.outcome"] == "ok"
    assert root.resource["service.name"] == "models"
    assert trace.names() == ["receive", "queue", "batch", "render"]
    assert trace.names(trace.one("batch")) == ["decode", "predict", "encode"]
    assert_adds_up(trace)
    assert own == context(trace)


def test_a_trace_is_shown_without_a_collector(server: Server, collector: Collector) -> None:
    server.post("/telling", "a", {"x-request-id": "shown"})
    trace = collector.request("shown")
    batch = collector.wait(lambda span: span.trace == trace.one("batch").links[0][0])
    found = server.get("/trace/shown").json()
    (resource,) = found["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    assert {span["spanId"] for span in spans} >= {span.span for span in [*trace.spans, *batch]}
    root = next(span for span in spans if span["spanId"] == trace.root.span)
    assert (root["traceId"], root["startTimeUnixNano"]) == (trace.root.trace, str(trace.root.start))
    assert server.get(f"/trace/{trace.root.trace}").json() == found, "the id of an exemplar leads to the same"
    assert server.get("/trace/unknown").status == 404
    assert server.get(f"/trace/{'0' * 32}").status == 404
    assert server.post("/trace/shown", "").status == 404


def test_a_bucket_of_durations_names_a_trace(server: Server, collector: Collector) -> None:
    server.post("/telling", "a", {"x-request-id": "exemplar"})
    root = collector.request("exemplar").root
    with server.client() as client:
        scraped = client.request("GET", "/metrics", headers={"accept": "application/openmetrics-text"}).body.decode()
    families = prometheus_client.openmetrics.parser.text_string_to_metric_families(scraped)
    samples = [sample for family in families for sample in family.samples]
    ((found, exemplar),) = (
        (one, own) for one in samples if (own := one.exemplar) and own.labels["trace_id"] == root.trace
    )
    assert (found.name, found.labels["result"]) == ("jitney_request_duration_seconds_bucket", "ok")
    assert found.labels["deployment"] == "telling"
    assert exemplar.value <= float(found.labels["le"])
    # The duration is that of the histogram: the buckets below have fewer requests.
    own = [one for one in samples if one.name == found.name and {**one.labels, "le": ""} == {**found.labels, "le": ""}]
    assert all(one.value < found.value for one in own if float(one.labels["le"]) < exemplar.value)


def test_the_context_of_a_client_is_taken_over(server: Server, collector: Collector) -> None:
    requests = [
        ("/telling", "text", "POST /telling"),
        ("/telling/batch", ["text", "text"], "POST /telling/batch"),
        ("/v2/models/telling/infer", infer_body("texts"), "POST /v2/models/telling/infer"),
        ("/v1/embeddings", {"model": "words", "input": "text"}, "POST /v1/embeddings"),
    ]
    for number, (path, body, name) in enumerate(requests):
        answer = server.post(path, body, {**PARENT, "x-request-id": f"taken-{number}"})
        assert answer.status == 200, answer.body
        root = collector.request(f"taken-{number}").root
        assert (root.trace, root.parent, root.state, root.name) == (TRACE, CALLER, "vendor=1", name)
    root = collector.request("taken-3").root
    assert root.attributes["gen_ai.operation.name"] == "embeddings"
    assert root.attributes["gen_ai.request.model"] == "words"


def infer_body(name: str) -> object:
    return {"inputs": [{"name": name, "datatype": "BYTES", "shape": [1], "data": ["text"]}]}


def test_grpc_takes_it_over_for_each_message(server: Server, collector: Collector) -> None:
    message = service_pb2.ModelInferRequest(
        model_name="telling", inputs=[{"name": "texts", "datatype": "BYTES", "shape": [1]}]
    )
    message.inputs[0].contents.bytes_contents.append(b"text")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        metadata = [*PARENT.items(), ("x-request-id", "rpc")]
        stub.ModelInfer(message, metadata=metadata, timeout=60)
        root = collector.request("rpc").root
        assert (root.trace, root.parent) == (TRACE, CALLER)
        assert root.name == "inference.GRPCInferenceService/ModelInfer"
        assert root.attributes["rpc.method"] == "ModelInfer"
        metadata = [*PARENT.items(), ("x-request-id", "stream")]
        assert len(list(stub.ModelStreamInfer(iter([message, message]), metadata=metadata, timeout=60))) == 2
    roots = collector.wait(lambda span: span.attributes.get("jitney.request_id") == "stream", count=2)
    assert {(root.trace, root.parent) for root in roots} == {(TRACE, CALLER)}


def test_a_program_is_in_the_trace_of_its_own_span(server: Server, collector: Collector, place: str) -> None:
    state = otel.TraceState([("vendor", "1")])
    span = otel.SpanContext(
        int(TRACE, 16), int(CALLER, 16), is_remote=False, trace_flags=otel.TraceFlags(1), trace_state=state
    )
    with jitney.connect_sync(place) as models, otel.use_span(otel.NonRecordingSpan(span)):
        own = models.telling("a", request_id="program")
        parts = models.outer("a", request_id="outer-program")
    trace = collector.request("program")
    assert (trace.root.name, trace.root.trace, trace.root.parent) == ("call telling", TRACE, CALLER)
    assert trace.root.state == parts["state"] == "vendor=1"
    assert own == context(trace)
    assert_adds_up(trace)


def test_models_that_use_each_other_are_one_trace(server: Server, collector: Collector) -> None:
    told = server.post("/outer", "a", {**PARENT, "x-request-id": "outer"}).json()
    trace = collector.request("outer")
    outer = trace.one("predict", trace.one("batch"))
    assert told["own"] == f"00-{TRACE}-{outer.span}-01"
    assert trace.names(outer) == ["queue", "batch"]
    inner = trace.one("batch", outer)
    assert inner.attributes["jitney.deployment"] == "telling"
    assert told["inner"] == f"00-{TRACE}-{trace.one('predict', inner).span}-01"
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_what_a_model_asks_is_below_its_own_span(server: Server, collector: Collector) -> None:
    server.post("/spanning", "a", {"x-request-id": "spanning"})
    trace = collector.request("spanning")
    inner = [span.name for span in trace.spans if span.parent == "0000000000000abc"]
    assert sorted(inner) == ["batch", "queue"]


def test_an_answer_in_parts_is_one_request(server: Server, collector: Collector) -> None:
    answer = server.post("/speaking", "a", {"accept": "text/event-stream", "x-request-id": "parts"}).body.decode()
    trace = collector.request("parts")
    assert trace.root.attributes["jitney.outcome"] == "ok"
    assert_adds_up(trace)
    assert context(trace) in answer


def test_the_stages_of_a_chain_are_batches_of_one_request(server: Server, collector: Collector) -> None:
    server.post("/chained", " a ", {"x-request-id": "chained"})
    trace = collector.request("chained")
    batches = [span.attributes["jitney.deployment"] for span in trace.children() if span.name == "batch"]
    assert batches == ["clean", "telling"]


def test_a_batch_and_its_requests_are_linked(serve: Serve, collector: Collector) -> None:
    arguments = ("--max-batch-delay-ms", "60000", "--max-batch-size", "3")
    server = serve("traced.py:Telling", arguments=arguments, environment=collector.environment)
    answers = [server.submit("/telling", f"{n}", {"x-request-id": f"linked-{n}"}) for n in range(3)]
    contexts = {answer.result().json() for answer in answers}
    traces = [collector.request(f"linked-{n}") for n in range(3)]
    batches = [trace.one("batch") for trace in traces]
    assert {batch.links for batch in batches} == {batches[0].links}
    ((trace_id, span_id),) = batches[0].links
    root = collector.wait(lambda span: span.span == span_id)[0]
    assert (root.trace, root.name, root.parent) == (trace_id, "batch telling", "")
    assert set(root.links) == {(batch.trace, batch.span) for batch in batches}
    assert root.attributes["jitney.batch.items"] == 3
    assert sorted(batch.attributes["jitney.batch.position"] for batch in batches) == [0, 1, 2]
    # The three requests are of three traces, so the model is in that of the batch.
    (predict,) = collector.wait(lambda span: span.parent == span_id and span.name == "predict")
    assert contexts == {f"00-{trace_id}-{predict.span}-01"}


def test_a_lost_worker_is_a_second_attempt(server: Server, collector: Collector) -> None:
    assert server.post("/telling", "once-a", {"x-request-id": "again"}).status == 200
    trace = collector.request("again")
    assert trace.names() == ["receive", "queue", "batch", "queue", "batch", "render"]
    assert_adds_up(trace)
    lost, again = (span for span in trace.children() if span.name == "batch")
    assert [span.attributes["jitney.attempt"] for span in (lost, again)] == [1, 2]
    assert lost.events[0].startswith("worker lost: ") and lost.status == ERROR
    assert not again.events


def test_what_fails_says_how(server: Server, collector: Collector) -> None:
    assert server.post("/telling", "raise", {"x-request-id": "raises"}).status == 500
    root = collector.request("raises").root
    assert (root.status, root.attributes["error.type"]) == (ERROR, root.attributes["jitney.outcome"])
    assert "until" in root.attributes["jitney.why"]
    bad = server.post("/telling", "a", {"x-request-id": "refused", "x-priority": "urgent"})
    trace = collector.request("refused")
    assert (bad.status, trace.root.status) == (400, 0)
    assert trace.names() == ["receive"]
    with server.client(timeout_s=0.1) as client, pytest.raises(OSError):
        client.post("/telling", "slow", {"x-request-id": "left"})
    assert collector.request("left").root.attributes["jitney.outcome"] == "cancelled"


def test_what_is_not_sampled_is_kept_only_if_it_is_slow_or_failed(serve: Serve, collector: Collector) -> None:
    environment = {**collector.environment, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    server = serve("traced.py:Telling", arguments=("--trace-slow-ms", "200"), environment=environment)
    seen: list[str] = []
    for text, headers, name in [
        ("a", {}, "quick"),
        ("a", UNSAMPLED, "quick-unsampled"),
        ("a", PARENT, "sampled"),
        ("slow", UNSAMPLED, "slow"),
        ("raise", {}, "failed"),
    ]:
        seen.append(server.post("/telling", text, {**headers, "x-request-id": name}).body.decode())
    kept = {name: collector.request(name).root.attributes["jitney.kept"] for name in ("sampled", "slow", "failed")}
    assert kept == {"sampled": "sampled", "slow": "slow", "failed": "failed"}
    assert not collector.knows("quick") and not collector.knows("quick-unsampled")
    # The model learns that its spans are not wanted.
    assert seen[1].endswith('-00"') and seen[2].endswith('-01"')
    slow = until(lambda: [line for line in server.log().splitlines() if "request slow" in line], "the log has it")
    assert slow[0].split(": ")[0].endswith("telling"), "it names the deployment"
    assert ": predict took " in slow[0] and " for its batch of one" in slow[0]
    assert " until model_failed" not in server.log(), "it was not slow, and the log has its failure"


def test_nothing_is_traced_unless_asked(serve: Serve) -> None:
    server = serve("traced.py:Telling", environment={"OTEL_TRACES_SAMPLER_ARG": "nonsense"})
    # What the client says passes on unread.
    assert server.post("/telling", "a", PARENT).json() == PARENT["traceparent"]
    answer = server.get("/trace/any")
    assert answer.status == 404
    assert "--trace-slow-ms" in answer.json()["detail"]


def test_no_request_waits_for_a_collector_and_refused_traces_come_again(serve: Serve) -> None:
    with collecting() as collector:
        collector.delay_s = 0.2
        collector.refusals += [(429, {}), (503, {"retry-after": "1"})]
        server = serve("traced.py:Telling", environment=collector.environment)
        for number in range(20):
            assert server.post("/telling", "a", {"x-request-id": f"r{number}"}).status == 200
        assert not collector.knows("r0"), "the answers did not wait for two refusals"
        collector.request("r0")
        collector.refusals += [(400, {})]
        server.post("/telling", "a", {"x-request-id": "bad"})
        until(lambda: server.metric("jitney_traces_total", end="failed") > 0, "what is wrong is not sent again")
        until(lambda: "it answered 400" in server.log(), "the log says why")


def test_spans_that_a_collector_rejects_are_failed_and_logged_once(serve: Serve) -> None:
    with collecting() as collector:
        collector.rejects = 1000
        server = serve(
            "traced.py:Telling", environment={**collector.environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"}
        )
        for number in range(5):
            server.post("/telling", "a", {"x-request-id": f"r{number}"})
        until(lambda: server.metric("jitney_traces_total", end="failed") == 10, "each has a request and a batch")
        assert server.metric("jitney_traces_total", end="sent") == 0
        assert server.log().count("the collector rejected 1000 of their") == 1
        collector.rejects = 0
        server.post("/telling", "a")
        until(lambda: "takes them again" in server.log(), "it is over")


def test_an_id_of_many_requests_shows_the_newest(server: Server, collector: Collector) -> None:
    for _ in range(12):
        server.post("/telling", "a", {"x-request-id": "shared"})
    collector.wait(lambda span: span.attributes.get("jitney.request_id") == "shared", count=12)
    found = server.get("/trace/shared").json()
    spans = found["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert sum(span["kind"] == SERVER for span in spans) == 10
    assert found["jitneyTracesLeftOut"] == 2


def test_a_collector_that_is_away_costs_traces_and_no_requests(serve: Serve) -> None:
    with collecting() as collector:
        collector.close()
        environment = {**collector.environment, "OTEL_BSP_MAX_QUEUE_SIZE": "100"}
        server = serve("traced.py:Telling", environment=environment)
        for _ in range(40):
            assert server.post("/telling", "a").status == 200
        until(lambda: server.metric("jitney_traces_total", end="dropped") > 0, "the queue is full")
        assert "which does not take them now" in server.log()
        server.terminate()
        assert server.wait_exit() == 0


def test_the_standard_variables_are_read_and_the_last_traces_are_sent_at_the_end(serve: Serve) -> None:
    with collecting() as collector:
        environment = {
            **collector.environment,
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
            "OTEL_BSP_MAX_QUEUE_SIZE": "many",
            "OTEL_TRACES_SAMPLER": "often",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        server = serve("traced.py:Telling", environment=environment)
        assert "OTEL_TRACES_SAMPLER is " in server.log() and "`often`" in server.log()
        assert "OTEL_BSP_MAX_QUEUE_SIZE is a positive whole number, got `many`" in server.log()
        until(lambda: f"traces go to {collector.url}/v1/traces, which answers" in server.log(), "it was tried out")
        server.post("/telling", "a", {"x-request-id": "last"})
        assert not collector.knows("last")
        server.terminate()
        assert server.wait_exit() == 0
        assert collector.knows("last")
        assert collector.request("last").root.resource["deployment.environment.name"] == "test"
        assert all(headers["x-tenant"] == "a b" for headers in collector.headers)
