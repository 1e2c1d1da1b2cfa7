"""What only gRPC has: streams, cancellation, health, reflection, statuses. The rest is in test_open_inference.py."""

# pyright: basic, reportMissingTypeStubs=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportCallIssue=false

import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import APPS, Serve, Server, until
from triton_clients import TritonClient, texts
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

SERVICE = "inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("served"), [str(APPS / "tensors.py")], (), {})
    try:
        yield server.wait_ready()
    finally:
        server.finish()


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


def request_of(*values: str, **fields: Any) -> service_pb2.ModelInferRequest:
    contents = service_pb2.InferTensorContents(bytes_contents=[value.encode() for value in values])
    tensor = service_pb2.ModelInferRequest.InferInputTensor(
        name="texts", datatype="BYTES", shape=[len(values), 1], contents=contents
    )
    return service_pb2.ModelInferRequest(model_name="texts", inputs=[tensor], **fields)


# ── streams ────────────────────────────────────────────────────────────────────


def test_a_stream_answers_in_order_and_survives_an_error(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(100):
            text = "bad" if number == 50 else f"text-{number}"
            client.client.async_stream_infer("texts", [client.tensor("texts", texts(text))], request_id=str(number))
        for number in range(100):
            result, error = answers.get(timeout=60)
            if number == 50:
                assert "too bad" in error.message()
                continue
            assert error is None
            assert result.get_response().id == str(number)
            assert result.as_numpy("output")[0, 0].decode() == f"text-{number}"[::-1]
        client.client.stop_stream()


def test_the_asynchronous_client_streams_too(server: Server) -> None:
    with TritonClient("grpc.aio", server.port) as client:

        async def requests() -> Any:
            for number in range(10):
                tensor = client.tensor("texts", texts(f"text-{number}"))
                yield {"model_name": "texts", "inputs": [tensor]}

        async def collect() -> list[Any]:
            return [answer async for answer in client.client.stream_infer(requests())]

        answers = client._loop.run_until_complete(collect())
    assert [error for _, error in answers] == [None] * 10
    assert [result.as_numpy("output")[0, 0].decode() for result, _ in answers] == [f"text-{n}"[::-1] for n in range(10)]


def test_the_last_answer_to_a_request_says_so_when_asked(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        tensor = client.tensor("texts", texts("a"))
        client.client.async_stream_infer("texts", [tensor], enable_empty_final_response=True)
        result, error = answers.get(timeout=60)
        assert error is None and result.get_response().parameters["triton_final_response"].bool_param
        client.client.stop_stream()


def test_a_strict_stream_ends_with_the_status_of_its_first_error(channel: grpc.Channel) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    requests = iter([request_of("a", id="1"), request_of("bad", id="2"), request_of("c", id="3")])
    answers = stub.ModelStreamInfer(requests, metadata=[("triton_grpc_error", "true")], timeout=60)
    assert next(answers).infer_response.id == "1"
    with pytest.raises(grpc.RpcError) as caught:
        list(answers)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "too bad" in caught.value.details()


def test_a_lenient_stream_says_whose_error_it_is(channel: grpc.Channel) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    first, second = stub.ModelStreamInfer(iter([request_of("bad", id="x"), request_of("a", id="y")]), timeout=60)
    assert "too bad" in first.error_message and first.infer_response.id == "x"
    assert not second.error_message and second.infer_response.raw_output_contents == [b"\x01\x00\x00\x00a"]


@pytest.mark.parametrize("is_strict", ["true", "false"])
def test_a_model_that_fails_in_a_stream_is_told_in_the_log(
    server: Server, channel: grpc.Channel, is_strict: str
) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    own = f"stream-{is_strict}"
    metadata = [("triton_grpc_error", is_strict), ("x-request-id", own)]
    answers = stub.ModelStreamInfer(iter([request_of("raise")]), metadata=metadata, timeout=60)
    if is_strict == "true":
        with pytest.raises(grpc.RpcError, match="the model failed on this input"):
            list(answers)
    else:
        assert "the model failed on this input" in next(answers).error_message
    until(
        lambda: f"request {own}: model_failed: RuntimeError: the model cannot do this" in server.log(),
        "the log says why",
    )


def test_answers_that_a_stream_does_not_take_are_counted(serve: Serve) -> None:
    server = serve("tensors.py")

    def untaken() -> int:
        return int(server.metric("jitney_untaken_bytes"))

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        requests = (request_of("a" * (1 << 20)) for _ in range(64))
        answers = stub.ModelStreamInfer(requests)
        until(lambda: untaken() > 4 << 20, "what waits behind the first answers is counted")
        answers.cancel()
        until(lambda: untaken() == 0, "nothing is left of the stream")


def test_a_stream_does_not_keep_the_server_from_ending(serve: Serve) -> None:
    server = serve("tensors.py")
    hold: queue.Queue[Any] = queue.Queue()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        hold.put(request_of("a"))
        answers = stub.ModelStreamInfer(iter(hold.get, None))
        assert next(answers).infer_response.model_name == "texts"
        server.terminate()
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        hold.put(None)
        assert server.wait_exit(20) == 0


def test_reflection_does_not_keep_the_server_from_ending(serve: Serve) -> None:
    server = serve("tensors.py")
    hold: queue.Queue[Any] = queue.Queue()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        hold.put(b"\x3a\x00")  # list_services
        ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        answers = ask(iter(hold.get, None))
        assert SERVICE.encode() in next(answers)
        server.terminate()
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE and "shutting down" in caught.value.details()
        hold.put(None)
        assert server.wait_exit(20) == 0


def test_a_message_that_stops_half_way_ends_its_stream(serve: Serve) -> None:
    server = serve("tensors.py", arguments=("--body-timeout-s", "5"))

    def receiving() -> int:
        return int(server.metric("jitney_receiving_bytes"))

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    head = {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "localhost",
        ":path": f"/{SERVICE}/ModelStreamInfer",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    packed = b"".join(  # as literals that are not indexed
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in head.items()
    )
    message = b"\0" + (1 << 20).to_bytes(4, "big") + b"x" * 10_000
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        connection.sendall(frame(1, 4, 1, packed) + frame(0, 0, 1, message))
        until(lambda: receiving() >= 10_000, "half of the message is there")
        until(lambda: receiving() == 0, "its stream was ended", 30)


# ── calls that end otherwise ───────────────────────────────────────────────────


def test_a_cancelled_call_is_not_computed(serve: Serve) -> None:
    server = serve("tensors.py")
    server.submit_held("/texts", [])
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelInfer.future(request_of("unwanted", "either"))
        stream = stub.ModelStreamInfer(iter([request_of("nor this")]))
        server.wait_inside(4)
        call.cancel()
        stream.cancel()
        server.wait_inside(1)
    server.open_gate()
    until(lambda: server.items_inside() == 0, "the server is empty")
    assert server.computed()["unwanted"] == server.computed()["nor this"] == 0


def test_the_deadline_of_a_call_is_the_requests(serve: Serve) -> None:
    server = serve("tensors.py")
    server.submit_held("/texts", [])
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request_of("late"), timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        server.wait_inside(1)
    server.open_gate()


def test_a_full_queue_says_when_to_come_back(serve: Serve) -> None:
    server = serve("tensors.py", arguments=("--set", "texts.max_queued_items=1"))
    server.submit_held("/texts", ["queued"])
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request_of("too many"), timeout=30)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = {**dict(caught.value.initial_metadata()), **dict(caught.value.trailing_metadata())}
    assert trailers["x-jitney-reason"] == "queue_full"
    if "retry-after" in trailers:
        assert b"google.rpc.RetryInfo" in trailers["grpc-status-details-bin"]
    server.open_gate()


def test_messages_of_100_mb_are_an_option(serve: Serve) -> None:
    arguments = ("--max-body-bytes", "150000000", "--set", "floats.max_answer_bytes=150000000")
    server = serve("tensors.py", arguments=arguments)
    with TritonClient("grpc", server.port) as client:
        x = np.ones((1, 25_000_000), np.float32)
        np.testing.assert_array_equal(client.infer("floats", {"x": x}).as_numpy("output"), x)
        with pytest.raises(InferenceServerException, match="150000000") as caught:
            client.infer("floats", {"x": np.ones((1, 40_000_000), np.float32)})
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_compressed_messages_are_read_and_bombs_refused(server: Server, channel: grpc.Channel) -> None:
    with TritonClient("grpc", server.port) as client:
        for algorithm in ("gzip", "deflate"):
            x = np.zeros((1, 100_000), np.float32)
            result = client.infer("floats", {"x": x}, compression_algorithm=algorithm)
            np.testing.assert_array_equal(result.as_numpy("output"), x)
    infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
    with pytest.raises(grpc.RpcError) as caught:
        infer(b"\0" * 100_000_000, compression=grpc.Compression.Gzip, timeout=60)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "inflated" in caught.value.details()


def test_calls_that_end_before_their_model_is_known_are_counted(serve: Serve) -> None:
    server = serve("tensors.py", arguments=("--max-body-bytes", "1000"))

    def count(outcome: str) -> float:
        return server.metric("jitney_requests_total", deployment="(unknown)", outcome=outcome)

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.RpcError):
            infer(b"\0" * 2000, timeout=60)
        assert count("too_large") == 1
        with pytest.raises(grpc.RpcError):
            infer(b"\xff\xff", timeout=60)
        assert count("malformed_body") == 1


def test_wrong_calls_have_their_status_and_disturb_nobody(channel: grpc.Channel) -> None:
    code = grpc.StatusCode
    for method, message, status in [
        (f"/{SERVICE}/ModelInfer", b"\xff\xff", code.INVALID_ARGUMENT),
        (f"/{SERVICE}/ModelInfer", b"", code.NOT_FOUND),
        (f"/{SERVICE}/ModelMetadata", b"\x0a\x05texts\x12\x019", code.NOT_FOUND),
        (f"/{SERVICE}/Nothing", b"", code.UNIMPLEMENTED),
        (f"/{SERVICE}/SystemSharedMemoryStatus", b"", code.UNIMPLEMENTED),
        (f"/{SERVICE}/LogSettings", b"", code.UNIMPLEMENTED),
        ("/other.Service/Method", b"", code.UNIMPLEMENTED),
        ("/", b"", code.UNIMPLEMENTED),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method)(message, timeout=30)
        assert caught.value.code() == status, (method, caught.value)
        if "SharedMemory" in method or "Settings" in method:
            assert "this server" in caught.value.details() and "no method" not in caught.value.details()
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    wrong = request_of("a")
    wrong.inputs[0].ClearField("contents")
    wrong.raw_input_contents.extend([b"\x01\x00\x00\x00a"] * 2)
    truncated = request_of("a")
    truncated.inputs[0].ClearField("contents")
    truncated.raw_input_contents.append(b"\x09\x00\x00\x00a")
    both = request_of("a")
    both.raw_input_contents.append(b"\x01\x00\x00\x00a")
    negative = request_of("a")
    negative.inputs[0].shape[0] = -1
    for request, told in [
        (wrong, "2 raw_input_contents"),
        (truncated, "element 0 is cut off"),
        (both, "contents field must not be specified when using raw_input_contents for '"),
        (negative, "below 0"),
        (request_of("a", parameters={"x": service_pb2.InferParameter()}), "`x` has no value"),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=30)
        assert caught.value.code() == code.INVALID_ARGUMENT and told in caught.value.details(), caught.value
    assert stub.ModelInfer(request_of("good"), timeout=30).outputs[0].shape == [1, 1]


def test_grpc_over_http1_is_told_what_it_needs(server: Server) -> None:
    answer = server.post(f"/{SERVICE}/ModelInfer", b"", {"content-type": "application/grpc"})
    assert answer.status == 200 and answer.headers["grpc-status"] == "3"
    assert "HTTP/2" in answer.headers["grpc-message"]


def test_keys_are_asked_for_by_all_but_probes(serve: Serve) -> None:
    server = serve("tensors.py", environment={"JITNEY_API_KEYS": "a-key-of-sixteen-letters"})
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30).live
        assert stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=30).ready
        check = health_pb2_grpc.HealthStub(channel).Check
        assert check(health_pb2.HealthCheckRequest(), timeout=30).status == health_pb2.HealthCheckResponse.SERVING
        # Messages that need no key are short, also when inflated: parsing unknown fields costs CPU too.
        live = channel.unary_unary(f"/{SERVICE}/ServerLive")
        with pytest.raises(grpc.RpcError) as caught:
            live(b"\x08\x01" * 10_000_000, compression=grpc.Compression.Gzip, timeout=30)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, caught.value
        for call in (
            lambda: stub.ModelInfer(request_of("a"), timeout=30),
            lambda: list(stub.ModelStreamInfer(iter([request_of("a")]), timeout=30)),
            lambda: stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=30),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        metadata = [("authorization", "Bearer a-key-of-sixteen-letters")]
        assert stub.ModelInfer(request_of("a"), timeout=30, metadata=metadata).model_name == "texts"


# ── health and reflection ──────────────────────────────────────────────────────


def test_health_is_told_of_the_server_and_of_each_model(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE, "texts"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=30)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watch_hears_of_changes(serve: Serve) -> None:
    server = serve("tensors.py", arguments=("--drain-grace-s", "2"))
    status = health_pb2.HealthCheckResponse
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
        assert next(unknown).status == status.SERVICE_UNKNOWN
        unknown.cancel()
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == status.SERVING
        server.terminate()
        assert next(watch).status == status.NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert server.wait_exit(20) == 0


def test_reflection_tells_the_protocol_as_nvidias_client_has_it(channel: grpc.Channel) -> None:
    """Every message, field, number and type that is served is the protocol's own."""
    database = ProtoReflectionDescriptorDatabase(channel)
    names = set(database.get_services())
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}
    ours = DescriptorPool(database)
    mine = ours.FindServiceByName(SERVICE)
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    absent = {method.name for method in theirs.methods} - {method.name for method in mine.methods}
    assert absent == {method.name for method in theirs.methods if "SharedMemory" in method.name} | {
        "TraceSetting",
        "LogSettings",
    }
    for method in mine.methods:
        same = theirs.methods_by_name[method.name]
        assert method.input_type.full_name == same.input_type.full_name
        assert method.output_type.full_name == same.output_type.full_name
        assert (method.client_streaming, method.server_streaming) == (same.client_streaming, same.server_streaming)
    known = {**service_pb2.DESCRIPTOR.message_types_by_name, **model_config_pb2.DESCRIPTOR.message_types_by_name}
    for name, message in mine.file.message_types_by_name.items():
        compare(message, known[name])
    mine_types = mine.file.enum_types_by_name["DataType"].values_by_name
    their_types = model_config_pb2.DESCRIPTOR.enum_types_by_name["DataType"].values_by_name
    assert {name: value.number for name, value in mine_types.items()} == {
        name: value.number for name, value in their_types.items()
    }


def compare(mine: Any, theirs: Any) -> None:
    for field in mine.fields:
        same = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated) == (same.number, same.type, same.is_repeated), (
            field.full_name
        )
        for kind in ("message_type", "enum_type"):
            own, other = getattr(field, kind), getattr(same, kind)
            assert (own and own.full_name) == (other and other.full_name), field.full_name
    for nested in mine.nested_types:
        compare(nested, theirs.nested_types_by_name[nested.name])


def test_protos_in_the_repository_are_what_is_served(channel: grpc.Channel) -> None:
    folder = Path(__file__).parents[2] / "crates" / "server"
    served = (folder / "src" / "open_inference" / "messages" / "descriptors.bin").read_bytes()
    for name in ("inference.proto", "health.proto", "reflection.proto"):
        assert (folder / "proto" / name).is_file() and name.encode() in served
