"""The Open Inference Protocol as NVIDIA's clients speak it."""

# pyright: basic, reportMissingTypeStubs=false

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import APPS, Serve, Server, until
from triton_clients import KINDS, TritonClient, texts
from tritonclient.utils import InferenceServerException

MODELS = str(Path(__file__).parents[2] / "examples" / "triton_models.py")
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND = np.full((1, 16), 2, np.int32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from served(tmp_path_factory, MODELS)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from served(tmp_path_factory, str(APPS / "tensors.py"))


def served(folders: pytest.TempPathFactory, target: str) -> Iterator[Server]:
    """One server for many tests: none of them leaves traces in it."""
    server = Server(folders.mktemp("served"), [target], (), {})
    try:
        yield server.wait_ready()
    finally:
        server.finish()


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, models: Server) -> Iterator[TritonClient]:
    with TritonClient(request.param, models.port) as client:
        yield client


@pytest.fixture(params=KINDS)
def odd_client(request: pytest.FixtureRequest, odd: Server) -> Iterator[TritonClient]:
    with TritonClient(request.param, odd.port) as client:
        yield client


# ── as NVIDIA's examples call them ─────────────────────────────────────────────


def test_simple_adds_and_subtracts(client: TritonClient) -> None:
    result = client.infer("simple", {"INPUT0": FIRST, "INPUT1": SECOND}, request_id="7")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FIRST + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
    assert result.as_numpy("OUTPUT0").dtype == np.int32
    response = result.get_response(as_json=True) if client.is_grpc else result.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == ("simple", "1", "7")


def test_only_the_outputs_that_are_asked_for_come_back(client: TritonClient) -> None:
    result = client.infer("simple", {"INPUT0": FIRST, "INPUT1": SECOND}, ["OUTPUT1"], model_version="1")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
    assert result.as_numpy("OUTPUT0") is None


def test_rows_are_split_and_joined_beyond_a_batch(client: TritonClient) -> None:
    first = np.arange(16 * 100, dtype=np.int32).reshape(100, 16)
    result = client.infer("simple", {"INPUT0": first, "INPUT1": first[::-1].copy()})
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + first[::-1])


def test_simple_string_calculates_with_text(client: TritonClient) -> None:
    first, second = FIRST.astype(str).astype(np.object_), SECOND.astype(str).astype(np.object_)
    result = client.infer("simple_string", {"INPUT0": first, "INPUT1": second}, ["OUTPUT0", "OUTPUT1"])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0").astype(np.int32), FIRST + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1").astype(np.int32), FIRST - SECOND)


def test_simple_identity_keeps_every_character(client: TritonClient) -> None:
    strings = np.array(["he\x00llo", "ä", "", "日本"] * 4, dtype=np.object_).reshape(1, 16)
    result = client.infer("simple_identity", {"INPUT0": strings}, ["OUTPUT0"])
    given_back = [element.decode() for element in result.as_numpy("OUTPUT0").flatten()]
    assert given_back == list(strings.flatten())


def test_health_and_metadata_are_told(client: TritonClient) -> None:
    assert client.ask("is_server_live") and client.ask("is_server_ready") and client.ask("is_model_ready", "simple")
    assert client.ask("is_model_ready", "simple", "1") and not client.ask("is_model_ready", "simple", "2")
    server = client.ask("get_server_metadata")
    assert server["name"] == "jitney" and "binary_tensor_data" in server["extensions"]
    model = client.ask("get_model_metadata", "simple")
    shape = ["-1", "16"] if client.is_grpc else [-1, 16]
    assert (model["name"], model["versions"]) == ("simple", ["1"])
    assert model["inputs"] == [{"name": f"INPUT{i}", "datatype": "INT32", "shape": shape} for i in (0, 1)]
    assert [output["name"] for output in model["outputs"]] == ["OUTPUT0", "OUTPUT1"]


def test_an_unknown_model_is_said_in_the_words_that_clients_look_for(client: TritonClient) -> None:
    for call in (
        lambda: client.ask("get_model_metadata", "wrong_model_name"),
        lambda: client.infer("wrong_model_name", {"INPUT0": FIRST, "INPUT1": SECOND}),
    ):
        with pytest.raises(InferenceServerException) as caught:
            call()
        assert caught.value.message().startswith("Request for unknown model")
        assert caught.value.status() in ("404", "StatusCode.NOT_FOUND")
    with pytest.raises(InferenceServerException, match="its only version is 1"):
        client.infer("simple", {"INPUT0": FIRST, "INPUT1": SECOND}, model_version="3")


def test_models_are_listed_and_not_controlled(client: TritonClient) -> None:
    index = client.ask("get_model_repository_index")
    models = index["models"] if client.is_grpc else index
    assert {model["name"]: model["state"] for model in models} == dict.fromkeys(
        ("simple", "simple_string", "simple_identity"), "READY"
    )
    for method in ("load_model", "unload_model"):
        with pytest.raises(InferenceServerException, match="models are loaded when the server starts"):
            client.ask(method, "simple")


def test_perf_analyzer_finds_what_it_asks_for(client: TritonClient) -> None:
    """It reads metadata and configuration, sends the inputs that they describe, and compares statistics."""
    assert "statistics" in client.ask("get_server_metadata")["extensions"]
    config = client.ask("get_model_config", "simple")
    config = config["config"] if client.is_grpc else config
    assert config["max_batch_size"] == 8
    assert not config.get("model_transaction_policy", {}).get("decoupled", False)
    inputs = {}
    for tensor in config["input"]:
        assert tensor["data_type"] == "TYPE_INT32"
        inputs[tensor["name"]] = np.zeros((1, *map(int, tensor["dims"])), np.int32)
    before = statistics(client)
    for _ in range(3):
        client.infer("simple", inputs)
    after = statistics(client)
    assert after["inference_count"] - before["inference_count"] == 3
    assert 1 <= after["execution_count"] - before["execution_count"] <= 3
    assert after["success"] - before["success"] == 3
    assert after["compute_infer"] > before["compute_infer"]
    # It ends with an error unless these are equal.
    assert after["input_count"] == after["infer_count"] == after["output_count"] == after["success"]


def statistics(client: TritonClient) -> dict[str, int]:
    [model] = client.ask("get_inference_statistics", "simple")["model_stats"]
    phases = model["inference_stats"]
    return {
        "inference_count": int(model.get("inference_count", 0)),
        "execution_count": int(model.get("execution_count", 0)),
        "success": int(phases["success"].get("count", 0)),
        "compute_infer": int(phases["compute_infer"].get("ns", 0)),
        "input_count": int(phases["compute_input"].get("count", 0)),
        "infer_count": int(phases["compute_infer"].get("count", 0)),
        "output_count": int(phases["compute_output"].get("count", 0)),
    }


# ── annotations as tensors ─────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_one_request_share_batches_with_others(serve: Serve, kind: str) -> None:
    odd = serve("tensors.py")
    answers = odd.submit_held("/texts", [f"native-{n}" for n in range(3)])

    def infer() -> list[Any]:
        with TritonClient(kind, odd.port) as client:
            return column(client.infer("texts", {"texts": texts("ab", "cd")}), "output")

    result = odd.submit_call(infer)
    odd.wait_inside(len(answers) + 2)
    odd.open_gate()
    assert result.result(60) == ["ba", "dc"]
    assert [answer.result(60).json() for answer in answers[1:]] == [f"native-{n}"[::-1] for n in range(3)]
    assert sorted(odd.calls()[1].items) == sorted(["native-0", "native-1", "native-2", "ab", "cd"])


def column(result: Any, output: str) -> list[Any]:
    values = result.as_numpy(output).flatten().tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def test_a_row_that_fails_fails_its_request_and_is_named(odd_client: TritonClient) -> None:
    with pytest.raises(InferenceServerException, match="row 1 of 3: too bad") as caught:
        odd_client.infer("texts", {"texts": texts("a", "bad", "c")})
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    with pytest.raises(InferenceServerException, match="the model failed on this input") as caught:
        odd_client.infer("texts", {"texts": texts("raise")})
    assert caught.value.status() in ("500", "StatusCode.INTERNAL")
    assert column(odd_client.infer("texts", {"texts": texts("good")}), "output") == ["doog"]


def test_bytes_and_halves_survive(odd_client: TritonClient) -> None:
    blobs = np.array([[bytes(range(256))], [b""]], dtype=np.object_)
    assert odd_client.infer("raw", {"blobs": blobs}).as_numpy("output").tolist() == blobs.tolist()
    halves = np.array([[0.5, -2.0, np.inf]], np.float16)
    np.testing.assert_array_equal(odd_client.infer("halves", {"x": halves}).as_numpy("output"), halves)


def test_a_model_without_a_batch_keeps_its_shape(odd_client: TritonClient) -> None:
    x = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(odd_client.infer("whole", {"x": x}).as_numpy("output"), x.T)
    assert "max_batch_size" not in odd_client.ask("get_model_config", "whole") or not odd_client.is_grpc


def test_a_struct_is_one_tensor_per_field_and_grouped(odd_client: TritonClient) -> None:
    result = odd_client.infer(
        "pictures",
        {
            "prompt": texts("a", "b", "c"),
            "width": np.array([512, 64, 512], np.int32),
            "scale": np.array([[1], [0.5], [2]], np.float32),
            "style": texts("rich", "plain", "plain"),
        },
    )
    assert column(result, "prompt") == ["a", "b", "c"]
    assert column(result, "width") == [512, 64, 512]
    assert column(result, "scale") == [1.0, 0.5, 2.0]
    assert column(result, "style") == ["rich", "plain", "plain"]
    assert column(result, "seed") == ["null"] * 3
    assert column(result, "mates")[1] == 1


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_large_tensors_travel_both_ways(odd_client: TritonClient) -> None:
    x = np.random.default_rng(1).random((1, 4_000_000), np.float32)
    np.testing.assert_array_equal(odd_client.infer("floats", {"x": x}).as_numpy("output"), x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_is_a_deadline(serve: Serve, kind: str) -> None:
    odd = serve("tensors.py")
    odd.submit_held("/texts", [])
    with TritonClient(kind, odd.port) as client, pytest.raises(InferenceServerException) as caught:
        client.infer("texts", {"texts": texts("late")}, timeout=200_000)
    assert caught.value.status() in ("504", "StatusCode.DEADLINE_EXCEEDED")
    odd.open_gate()
    until(lambda: odd.items_inside() == 0, "the server is empty")
    assert odd.computed()["late"] == 0


# ── bad input ──────────────────────────────────────────────────────────────────

SIMPLE = [
    ({"INPUT0": FIRST}, "`INPUT1` is missing"),
    ({"INPUT0": FIRST, "INPUT1": SECOND.astype(np.int64)}, "takes INT32, got INT64"),
    ({"INPUT0": FIRST, "INPUT1": SECOND[:, :15].copy()}, "takes .-1, 16., got .1, 15."),
    ({"INPUT0": FIRST, "INPUT1": SECOND[0]}, "got .16."),
    ({"INPUT0": FIRST, "INPUT1": np.repeat(SECOND, 2, 0)}, "`INPUT0` has 1 rows and `INPUT1` has 2"),
    ({"INPUT0": FIRST, "INPUT1": SECOND, "INPUT2": SECOND}, "no input `INPUT2`"),
    ({"INPUT0": FIRST[:0], "INPUT1": SECOND[:0]}, "no rows"),
]


def test_what_does_not_fit_is_named_and_disturbs_nobody(client: TritonClient) -> None:
    for inputs, told in SIMPLE:
        with pytest.raises(InferenceServerException, match=told) as caught:
            client.infer("simple", inputs)
        assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    good: dict[str, Any] = {"INPUT0": FIRST, "INPUT1": SECOND}
    with pytest.raises(InferenceServerException, match="no output `OUTPUT9`; the outputs are OUTPUT0, OUTPUT1"):
        client.infer("simple", good, ["OUTPUT9"])
    with pytest.raises(InferenceServerException, match="no model here keeps state"):
        client.infer("simple", good, sequence_id=5, sequence_start=True)
    np.testing.assert_array_equal(client.infer("simple", good).as_numpy("OUTPUT0"), FIRST + SECOND)


# ── REST alone ─────────────────────────────────────────────────────────────────


def body_of(**changes: Any) -> dict[str, Any]:
    tensor = {"shape": [1, 16], "datatype": "INT32", "data": list(range(16))}
    return {"inputs": [{"name": "INPUT0", **tensor}, {"name": "INPUT1", **tensor}], **changes}


def test_json_alone_is_enough(models: Server) -> None:
    answer = models.post("/v2/models/simple/versions/1/infer", body_of(id="x", parameters={"mine": 1, "priority": 1}))
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json()["id"] == "x" and answer.json()["parameters"] == {"mine": 1}
    [output, _] = answer.json()["outputs"]
    assert output == {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16], "data": list(range(0, 32, 2))}
    assert answer.batch_size == 1 and "queue;dur=" in answer.headers["server-timing"]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_are_compressed_both_ways(odd: Server, coding: str) -> None:
    pack, unpack = (gzip.compress, gzip.decompress) if coding == "gzip" else (zlib.compress, zlib.decompress)
    data = json.dumps({"inputs": [{"name": "x", "shape": [1, 1000], "datatype": "FP32", "data": [0.5] * 1000}]})
    headers = {"content-encoding": coding, "accept-encoding": coding}
    with odd.client() as client:
        answer = client.request("POST", "/v2/models/floats/infer", pack(data.encode()), headers)
    assert answer.status == 200 and answer.headers["content-encoding"] == coding
    assert json.loads(unpack(answer.body))["outputs"][0]["data"] == [0.5] * 1000


def test_a_bomb_is_refused(serve: Serve) -> None:
    server = serve("tensors.py", arguments=("--max-body-bytes", "1000000"))
    bomb = gzip.compress(b" " * 50_000_000)
    with server.client() as client:
        answer = client.request("POST", "/v2/models/floats/infer", bomb, {"content-encoding": "gzip"})
    assert answer.status == 413 and "inflated" in answer.json()["error"]


def test_a_body_without_json_is_the_one_input(odd: Server) -> None:
    with odd.client() as client:
        answer = client.request("POST", "/v2/models/raw/infer", b"\x00\xff", {"inference-header-content-length": "0"})
    assert answer.status == 200
    head = int(answer.headers["inference-header-content-length"])
    assert answer.body[head:] == b"\x02\x00\x00\x00\x00\xff"


WRONG: list[tuple[str, str, bytes, dict[str, str], int, str]] = [
    ("POST", "/v2/models/simple/infer", b"{", {}, 400, "not an inference request"),
    ("POST", "/v2/models/simple/infer", b"", {}, 400, "not an inference request"),
    ("POST", "/v2/models/simple/infer", b"{}", {"inference-header-content-length": "9"}, 400, "has 9 bytes"),
    ("POST", "/v2/models/simple/infer", b"{}", {"inference-header-content-length": "x"}, 400, "got `x`"),
    ("POST", "/v2/models/simple/infer", b"{}", {"content-encoding": "br"}, 415, "`br` is not taken"),
    ("POST", "/v2/models/simple/infer", b"{}", {"content-encoding": "gzip"}, 400, "is not gzip"),
    ("GET", "/v2/models/simple/infer", b"", {}, 405, "use POST"),
    ("POST", "/v2/models/simple", b"", {}, 405, "use GET"),
    ("POST", "/v2/models/simple/generates", b"{}", {}, 404, "not a route"),
    ("GET", "/v2/models/simple/versions/two", b"", {}, 404, "no version `two`"),
    ("GET", "/v2/systemsharedmemory/status", b"", {}, 404, "shared memory is not offered"),
    ("GET", "/v2/%ff", b"", {}, 404, "not a route"),
]


def test_wrong_requests_are_answered_in_the_form_of_the_protocol(models: Server) -> None:
    with models.client() as client:
        for method, path, body, headers, status, told in WRONG:
            answer = client.request(method, path, body, headers)
            assert (answer.status, list(answer.json())) == (status, ["error"]), (path, answer)
            assert told in answer.json()["error"], answer.json()
    assert models.get("/v2/health/live").json() == {"live": True}
    assert models.get("/v2/models").json() == {"models": ["simple", "simple_identity", "simple_string"]}
    assert len(models.get("/v2/models/stats").json()["model_stats"]) == 3


def test_keys_are_asked_for_by_all_but_probes(serve: Serve) -> None:
    server = serve("tensors.py", environment={"JITNEY_API_KEYS": "a-key-of-sixteen-letters"})
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert server.get(path).status == 200
    request = {"inputs": [{"name": "texts", "shape": [1], "datatype": "BYTES", "data": ["ab"]}]}
    for answer in (server.get("/v2"), server.post("/v2/models/texts/infer", request)):
        assert answer.status == 401 and list(answer.json()) == ["error"]
    answer = server.post("/v2/models/texts/infer", request, {"authorization": "Bearer a-key-of-sixteen-letters"})
    assert answer.json()["outputs"][0]["data"] == ["ba"]
