"""The official Python client, and a framework on top of it, against /v1."""

import base64
import json
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from harness import Serve, Server, serving
from langchain_openai import OpenAIEmbeddings
from openai_clients import base_url, client_of
from pydantic import SecretStr

KEY = "a-key-for-tests"
TEXTS = ["How many people live in London?", "London has nine million inhabitants.", "I like strong coffee."]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that leave it as it was."""
    # `eager` for the one whose batches are counted: `auto` may find smaller ones quicker while the machine is busy.
    arguments = ("--set", "words.policy=eager")
    keys = {"JITNEY_API_KEYS": KEY}
    with serving(tmp_path_factory, "embedders.py", arguments=arguments, environment=keys) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server, KEY) as client:
        yield client


def native(server: Server, text: str) -> list[float]:
    return server.post("/words", text, {"x-api-key": KEY}).json()


def test_models_are_those_that_say_their_task(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [(model.id, model.object, model.owned_by) for model in models] == [
        ("matryoshka", "model", "jitney"),
        ("passages", "model", "jitney"),
        ("words", "model", "jitney"),
    ]
    assert models[0].created > 1_700_000_000
    assert client.models.retrieve("words") == models[2]
    for name in ("plain", "nobody", "a/b"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(name)
        assert caught.value.code == "model_not_found"


def test_every_form_of_input_gives_vectors_and_counts(client: openai.OpenAI, server: Server) -> None:
    one = client.embeddings.create(model="words", input=TEXTS[0])
    assert (one.object, one.model, len(one.data)) == ("list", "words", 1)
    assert (one.usage.prompt_tokens, one.usage.total_tokens) == (6, 6)
    assert one.data[0].embedding == pytest.approx(native(server, TEXTS[0]))
    several = client.embeddings.create(model="words", input=TEXTS)
    assert [(found.object, found.index) for found in several.data] == [("embedding", n) for n in range(3)]
    assert several.usage.prompt_tokens == 15
    for text, found in zip(TEXTS, several.data, strict=True):
        assert found.embedding == pytest.approx(native(server, text))
    tokens = client.embeddings.create(model="matryoshka", input=[1, 22, 333])
    assert (len(tokens.data), tokens.usage.prompt_tokens) == (1, 3)
    lists = client.embeddings.create(model="matryoshka", input=[[1], [22, 333]])
    same = client.embeddings.create(model="matryoshka", input=["1", "22 333"])
    assert lists == same
    assert lists.usage.total_tokens == 3


def test_floats_and_base64_say_the_same(client: openai.OpenAI) -> None:
    for model in ("words", "matryoshka"):  # float32, and float64, which the API does not know
        floats = client.embeddings.create(model=model, input="a b", encoding_format="float").data[0].embedding
        packed = client.embeddings.create(model=model, input="a b", encoding_format="base64").data[0].embedding
        assert isinstance(packed, str)
        decoded = np.frombuffer(base64.b64decode(packed), "<f4")
        assert decoded.tolist() == pytest.approx(floats)
        assert client.embeddings.create(model=model, input="a b").data[0].embedding == pytest.approx(floats)


def test_dimensions_where_the_model_has_them(client: openai.OpenAI) -> None:
    whole = client.embeddings.create(model="matryoshka", input=TEXTS)
    short = client.embeddings.create(model="matryoshka", input=TEXTS, dimensions=3)
    assert [found.embedding for found in short.data] == [found.embedding[:3] for found in whole.data]
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="words", input="x", dimensions=3)
    assert caught.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError, match="the model has 8, not 9"):
        client.embeddings.create(model="matryoshka", input="x", dimensions=9)


def test_fields_that_the_model_declares_reach_it(client: openai.OpenAI, server: Server) -> None:
    extra = {"input_type": "passage", "nobody_knows": 1}
    found = client.embeddings.create(model="passages", input=["a", "b"], user="somebody", extra_body=extra)
    key = {"x-api-key": KEY}
    for text, each in zip("ab", found.data, strict=True):
        own = server.post("/passages", {"input": text, "input_type": "passage"}, key).json()
        assert each.embedding == pytest.approx(own)
    assert client.embeddings.create(model="passages", input="a").data[0].embedding != pytest.approx(
        found.data[0].embedding
    )
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="passages", input="a", extra_body={"input_type": "poem"})
    assert (caught.value.param, caught.value.status_code) == ("input_type", 400)


def test_two_thousand_inputs_are_items_of_their_own(client: openai.OpenAI, server: Server) -> None:
    texts = [f"text {number}" for number in range(2048)]
    found = client.embeddings.create(model="words", input=texts)
    assert [each.index for each in found.data] == list(range(2048))
    assert found.data[2047].embedding == pytest.approx(native(server, texts[2047]))
    assert found.usage.prompt_tokens == 4096
    sizes = [len(call.items) for call in server.calls() if set(call.items) & set(texts)]
    assert max(sizes) == 64
    assert len(sizes) <= 40, "full batches, and the one that was asked for natively"
    with pytest.raises(openai.BadRequestError, match="2048 inputs"):
        client.embeddings.create(model="words", input=[*texts, "one more"])


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"model": "words"}, "input", "input"),
        ({"input": "x"}, "model", "model"),
        ({"model": "words", "input": []}, "input", "the list is empty"),
        ({"model": "words", "input": ["a", 1]}, "input[1]", "expected a string"),
        ({"model": "words", "input": [1, 2]}, "input", "reads texts, not tokens"),
        ({"model": "matryoshka", "input": [-1]}, "input", "whole numbers"),
        ({"model": "matryoshka", "input": "x", "dimensions": 0}, "dimensions", "positive whole number"),
        ({"model": "words", "input": "x", "encoding_format": "hex"}, "encoding_format", "float or base64"),
        ({"model": "words", "input": ["fine", "bad"]}, "input[1]", "bad words have no vector"),
        ([1], None, "not what this route takes"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(
    client: openai.OpenAI, body: object, param: str | None, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/embeddings", cast_to=object, body=body)
    error = caught.value
    assert (error.type, error.param) == ("invalid_request_error", param), error.body
    assert says in error.message
    assert error.code in {"invalid_input", "malformed_body"}


def test_wrong_keys_routes_and_types_have_the_shape_of_the_api(client: openai.OpenAI, server: Server) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError, match="not a route"):
        client.responses.create(model="words", input="hi")
    with pytest.raises(openai.NotFoundError, match='has task="embedding", and this route needs task="chat"'):
        client.chat.completions.create(model="words", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.NotFoundError, match='has no task, and this route needs task="embedding"; models with'):
        client.embeddings.create(model="plain", input="x")
    key = {"x-api-key": KEY}
    with server.client() as raw:
        for method, path, body, headers, status in [
            ("GET", "/v1/embeddings", None, {}, 405),
            ("POST", "/v1/models", b"{}", {}, 405),
            ("POST", "/v1/embeddings", b"{", {"content-type": "application/json"}, 400),
            ("POST", "/v1/embeddings", b"{}", {"content-type": "text/plain"}, 415),
            ("POST", "/v1/embeddings", b"{}", {"content-encoding": "gzip"}, 415),
            ("POST", "/v1/embeddings", b"{}", {"x-request-timeout-ms": "soon"}, 400),
            ("GET", "/v1", None, {}, 404),
        ]:
            answer = raw.request(method, path, body, {**key, **headers})
            assert answer.status == status, (path, answer)
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
            assert answer.headers["x-request-id"]


def test_a_base_url_without_its_version_is_named(server: Server) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}", api_key=KEY, max_retries=0) as lost:
        with pytest.raises(openai.NotFoundError, match="base URL end with /v1") as caught:
            lost.embeddings.create(model="words", input="a")
        assert caught.value.code == "not_found"
        with pytest.raises(openai.NotFoundError, match="base URL end with /v1"):
            lost.models.list()


def test_a_deployment_has_as_many_names_as_its_clients_know(serve: Serve) -> None:
    names = "BAAI/bge-small-en-v1.5,text-embedding-3-small"
    server = serve("embedders.py", arguments=("--set", f"words.openai_names={names}"))
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list().data][2:] == ["words", *names.split(",")]
        for name in ("words", *names.split(",")):
            assert client.models.retrieve(name).id == name
            assert client.embeddings.create(model=name, input="two words").model == name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("words.openai_names=a,passages",), ["'passages'", "is", "a", "name", "of", "passages", "already"]),
        (("words.openai_names=a/b", "passages.openai_names=a/b"), ["'a/b'", "is", "a", "name", "of"]),
        (("plain.openai_names=a",), ["plain", "task="]),
    ],
)
def test_names_that_mean_two_models_or_none_are_refused(
    serve: Serve, arguments: tuple[str, ...], words: list[str]
) -> None:
    sets = tuple(word for argument in arguments for word in ("--set", argument))
    server = serve("embedders.py", arguments=sets, wait=False)
    assert server.wait_exit() != 0
    for word in words:
        assert word.replace("'", '"') in server.log()


def test_a_deadline_is_not_tried_again(serve: Serve) -> None:
    server = serve("embedders.py", environment={"JITNEY_API_KEYS": KEY})
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=KEY) as client:
        server.shut_gate()
        with pytest.raises(openai.InternalServerError) as caught:
            client.embeddings.create(
                model="words", input=["late", "too"], extra_headers={"x-request-timeout-ms": "300"}
            )
        server.open_gate()
    assert caught.value.status_code == 504
    assert caught.value.response.headers["x-should-retry"] == "false"
    text = server.log()
    assert KEY not in text
    key = {"x-api-key": KEY}
    with server.client() as raw:
        metrics = raw.request("GET", "/metrics", headers=key).body.decode()
    assert 'jitney_requests_total{deployment="words",outcome="deadline_exceeded"} 1' in metrics


def test_a_framework_on_top_of_the_client(server: Server) -> None:
    framework = OpenAIEmbeddings(
        model="words",
        base_url=base_url(server),
        api_key=SecretStr(KEY),
        max_retries=0,
        check_embedding_ctx_length=False,  # or it sends tokens of a model of OpenAI's
    )
    assert framework.embed_query(TEXTS[0]) == pytest.approx(native(server, TEXTS[0]))
    assert len(framework.embed_documents(TEXTS * 10)) == 30


def test_the_native_route_gives_a_plain_vector(server: Server) -> None:
    key = {"x-api-key": KEY}
    assert len(native(server, "a b c")) == 8
    many = server.post("/words/batch", TEXTS, key).json()
    assert [len(outcome["value"]) for outcome in many["outcomes"]] == [8, 8, 8]
    packed = server.post("/words", "a", {**key, "accept": "application/x-npy"})
    assert packed.headers["content-type"] == "application/x-npy"
    struct = server.post("/matryoshka", {"input": [1, 2], "dimensions": 2}, key)
    assert len(json.loads(struct.body)) == 2
