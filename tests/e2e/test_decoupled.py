"""Models in parts on gRPC streams, as NVIDIA's clients read them: several responses to one request."""

# pyright: basic, reportMissingTypeStubs=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportCallIssue=false

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from harness import APPS, Serve, Server, until
from triton_clients import KINDS, TritonClient, texts
from tritonclient.grpc import service_pb2, service_pb2_grpc


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    apps = [str(APPS / name) for name in ("spelling.py", "stepping.py", "talking.py", "tensors.py")]
    server = Server(tmp_path_factory.mktemp("served"), apps, (), {})
    try:
        yield server.wait_ready()
    finally:
        server.finish()


@pytest.fixture
def stub(server: Server) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request_of(model: str, own: str = "", is_batched: bool = True, **inputs: str) -> service_pb2.ModelInferRequest:
    shape = [1, 1] if is_batched else [1]
    tensors = [
        service_pb2.ModelInferRequest.InferInputTensor(
            name=name,
            datatype="BYTES",
            shape=shape,
            contents=service_pb2.InferTensorContents(bytes_contents=[value.encode()]),
        )
        for name, value in inputs.items()
    ]
    return service_pb2.ModelInferRequest(model_name=model, id=own, inputs=tensors)


def spell(text: str, own: str = "", empty_final: bool = False) -> service_pb2.ModelInferRequest:
    request = request_of("spell", own, texts=text)
    if empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def talk(text: str, own: str, gate: Path | None = None) -> service_pb2.ModelInferRequest:
    return request_of("talk", own, is_batched=False, text=text, gate="" if gate is None else str(gate))


def said(message: service_pb2.ModelStreamInferResponse) -> tuple[str, str, bool]:
    """Return the id of a response, its one text or error, and whether it is the last to its request."""
    response = message.infer_response
    [contents] = response.raw_output_contents or [b"\0\0\0\0" + message.error_message.encode()]
    return response.id, contents[4:].decode(), response.parameters["triton_final_response"].bool_param


# ── one request ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_parts_says_that_it_is_decoupled_and_has_whole_answers_too(server: Server, kind: str) -> None:
    with TritonClient(kind, server.port) as client:
        for model, is_decoupled in (("spell", True), ("write", True), ("talk", True), ("texts", False)):
            config = client.ask("get_model_config", model)
            policy = config.get("config", config)["model_transaction_policy"]
            assert policy.get("decoupled", False) == is_decoupled, model
        [output] = client.ask("get_model_metadata", "spell")["outputs"]
        assert (output["name"], output["datatype"]) == ("output", "BYTES")
        assert client.infer("spell", {"texts": texts("hey", "you")}).as_numpy("output").tolist() == [[b"hey"], [b"you"]]


def test_each_part_is_a_response_and_an_empty_one_ends_them_when_asked(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        tensor = client.tensor("texts", texts("hey"))
        client.client.async_stream_infer("spell", [tensor], request_id="7", enable_empty_final_response=True)
        for letter in (b"h", b"e", b"y", None):
            result, error = answers.get(timeout=60)
            assert error is None
            value = result.as_numpy("output")
            assert (None if value is None else value.tolist()) == (None if letter is None else [[letter]])
            response = result.get_response(as_json=True)
            assert (response["id"], response["model_name"], response["model_version"]) == ("7", "spell", "1")
            assert response["parameters"]["triton_final_response"]["bool_param"] == (letter is None)
        client.client.stop_stream()
    assert answers.empty()


def test_the_asynchronous_client_reads_parts_too(server: Server) -> None:
    with TritonClient("grpc.aio", server.port) as client:

        async def requests() -> Any:
            for text in ("ab", "cde"):
                tensor = client.tensor("texts", texts(text))
                yield {"model_name": "spell", "inputs": [tensor], "request_id": text}

        async def collect() -> list[Any]:
            return [answer async for answer in client.client.stream_infer(requests())]

        answers = client._loop.run_until_complete(collect())
    assert [error for _, error in answers] == [None] * 5
    for text in ("ab", "cde"):
        own = [result for result, _ in answers if result.get_response().id == text]
        assert b"".join(result.as_numpy("output")[0, 0] for result in own).decode() == text


def test_a_model_in_steps_has_a_response_for_each_step(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
    request = request_of("write", "7", text="hey")
    answers = [said(message) for message in stub.ModelStreamInfer(iter([request]), timeout=60)]
    # The end may be there a moment after the part, which does not wait for it.
    assert [answer[:2] for answer in answers] == [("7", "h"), ("7", "e"), ("7", "y")]
    assert not any(is_final for *_, is_final in answers[:2])
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    answers = [said(message) for message in stub.ModelStreamInfer(iter([request]), timeout=60)]
    assert answers == [("7", "h", False), ("7", "e", False), ("7", "y", False), ("7", "", True)]


def test_parts_and_a_whole_answer_are_responses_with_their_outputs(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        tensor = client.tensor("to", np.array([2], np.int64))
        client.client.async_stream_infer("counting", [tensor], outputs=[client.wanted("output")])
        values = [answers.get(timeout=60)[0] for _ in range(3)]
        client.client.stop_stream()
    assert [value.as_numpy("output").tolist() for value in values] == [[b'{"number":0}'], [b'{"number":1}'], [2]]
    assert values[2].get_response().parameters["triton_final_response"].bool_param


def test_a_request_of_several_rows_is_answered_whole(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        client.client.async_stream_infer("spell", [client.tensor("texts", texts("hey", "you"))])
        result, error = answers.get(timeout=60)
        client.client.stop_stream()
    assert error is None and result.as_numpy("output").tolist() == [[b"hey"], [b"you"]]
    assert result.get_response().parameters["triton_final_response"].bool_param and answers.empty()


# ── several requests on one stream ─────────────────────────────────────────────


def test_requests_of_one_stream_are_under_way_together(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    whole = request_of("texts", "whole", texts="abc")
    messages = stub.ModelStreamInfer(iter([talk("ab", "first", gate), talk("xyz", "second"), whole]), timeout=60)
    before = sorted(said(next(messages))[:2] for _ in range(5))
    assert before == [("first", "a"), ("second", "x"), ("second", "y"), ("second", "z"), ("whole", "cba")]
    gate.touch()
    assert [said(message)[:2] for message in messages] == [("first", "b")]


def test_an_error_in_the_middle_is_a_message_and_the_stream_goes_on(
    server: Server, stub: service_pb2_grpc.GRPCInferenceServiceStub
) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(spell("ab!", "bad"))
    metadata = [("x-request-id", "decoupled-1")]
    messages = stub.ModelStreamInfer(iter(requests.get, None), metadata=metadata, timeout=60)
    assert [said(next(messages)) for _ in range(2)] == [("bad", "a", False), ("bad", "b", False)]
    own, error, is_final = said(failed := next(messages))
    assert (own, is_final) == ("bad", True) and "the model failed on this input" in error and failed.error_message
    requests.put(spell("!", "early"))
    own, error, is_final = said(next(messages))
    assert (own, is_final) == ("early", True) and "the model failed on this input" in error
    requests.put(request_of("spell", "wrong", other="a"))
    own, error, is_final = said(next(messages))
    assert (own, is_final) == ("wrong", True) and "there is no input `other`" in error
    requests.put(spell("c", "good", empty_final=True))
    requests.put(None)
    assert [said(message) for message in messages] == [("good", "c", False), ("good", "", True)]
    until(lambda: "request decoupled-1: model_failed: ValueError: no shouting" in server.log(), "the log says why")


@pytest.mark.parametrize("text", ["ab!", "!"])
def test_a_strict_stream_ends_with_the_status_of_an_error(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, text: str
) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(spell(text))
    messages = stub.ModelStreamInfer(iter(requests.get, None), metadata=[("triton_grpc_error", "true")], timeout=60)
    parts = list[str]()
    with pytest.raises(grpc.RpcError) as caught:
        parts.extend(said(message)[1] for message in messages)
    requests.put(None)
    assert "".join(parts) == text[:-1]
    assert caught.value.code() == grpc.StatusCode.INTERNAL and "the model failed" in caught.value.details()


def test_more_requests_than_are_computed_at_once_are_all_answered(
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
) -> None:
    requests = iter([spell("ab", str(number), empty_final=True) for number in range(200)])
    answers = [said(message) for message in stub.ModelStreamInfer(requests, timeout=60)]
    for number in range(200):
        own = [answer[1:] for answer in answers if answer[0] == str(number)]
        assert own == [("a", False), ("b", False), ("", True)], number


# ── streams that end early ─────────────────────────────────────────────────────


def test_cancelling_a_stream_cancels_its_items(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        requests: queue.Queue[Any] = queue.Queue()
        for own in ("one", "two"):
            requests.put(talk("ab", own, tmp_path / "never"))
        messages = stub.ModelStreamInfer(iter(requests.get, None), timeout=60)
        assert sorted(said(next(messages)) for _ in range(2)) == [("one", "a", False), ("two", "a", False)]
        messages.cancel()
        requests.put(None)
        until(lambda: len(server.calls("left")) == 2, "both items end")
    until(lambda: server.metric("jitney_requests_total", deployment="talk", outcome="cancelled") == 2, "their count")
    until(lambda: server.items_inside() == 0, "the server is empty")
    until(lambda: server.metric("jitney_untaken_bytes") == 0, "nothing is left to take, not even of the last look")


def test_a_client_that_stops_its_stream_at_once_cancels_its_items(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py")
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with TritonClient("grpc", server.port) as client:
        client.client.start_stream(lambda result, error: answers.put((result, error)))
        tensors = [
            client.tensor("text", np.array(["ab"], np.object_)),
            client.tensor("gate", np.array([str(tmp_path / "never")], np.object_)),
        ]
        client.client.async_stream_infer("talk", tensors)
        result, error = answers.get(timeout=60)
        assert error is None and result.as_numpy("output").tolist() == [b"a"]
        client.client.stop_stream(cancel_requests=True)
    until(lambda: server.calls("left"), "the item ends")


def test_a_server_that_ends_finishes_the_answers_of_a_stream(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py")
    gate = tmp_path / "gate"
    requests: queue.Queue[Any] = queue.Queue()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        requests.put(talk("ab", "one", gate))
        messages = stub.ModelStreamInfer(iter(requests.get, None))
        assert said(next(messages)) == ("one", "a", False)
        server.terminate()
        until(lambda: not server.is_ready(), "the server ends")
        gate.touch()
        assert said(next(messages))[:2] == ("one", "b")
        with pytest.raises(grpc.RpcError) as caught:
            next(messages)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        requests.put(None)
        assert server.wait_exit(20) == 0


def test_a_stream_that_is_not_read_pauses_its_item_and_has_every_part_later(serve: Serve) -> None:
    server = serve("flowing.py")
    contents = service_pb2.InferTensorContents
    tensor = service_pb2.ModelInferRequest.InferInputTensor
    inputs = [
        tensor(name=name, datatype="INT64", shape=[1, 1], contents=contents(int64_contents=[value]))
        for name, value in (("parts", 2000), ("letters", 10_000))
    ]
    request = service_pb2.ModelInferRequest(model_name="steps", inputs=inputs)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        messages = stub.ModelStreamInfer(iter([request]), timeout=60)
        until(lambda: server.metric("jitney_paused_items") == 1, "the item is paused")
        assert server.metric("jitney_parts_total") < 2000
        numbers = list[int]()
        for message in messages:
            number, letters = message.infer_response.outputs
            assert (number.name, letters.name) == ("number", "letters")
            number, letters = message.infer_response.raw_output_contents
            assert len(letters) == 4 + 10_000
            numbers.append(int.from_bytes(number, "little"))
    assert numbers == list(range(2000))
