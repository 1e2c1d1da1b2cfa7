"""Several methods of one loaded model have their own routes and share its workers."""

from collections.abc import Iterator

import pytest
from harness import Serve, Server, serving
from openai_clients import client_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests: none changes it."""
    with serving(tmp_path_factory, "clip.py") as server:
        yield server


def test_each_method_has_its_route_and_its_types(server: Server) -> None:
    with server.client() as client:
        assert client.post("/clip/embed_text", "four").json() == [4.0, 1.0]
        assert client.post("/clip/embed_square", {"size": 3}).json()["size"] == 3
        assert client.post("/clip/embed_square", "four").status == 422
        assert client.post("/clip.embed_text", "four").json() == [4.0, 1.0]
        many = client.post("/clip/embed_text/batch", ["a", "bb"]).json()["outcomes"]
        assert many == [{"value": [1.0, 1.0]}, {"value": [2.0, 1.0]}]
        assert client.post("/clip", "four").status == 404  # it has no `predict`
        assert client.get("/clip/embed_text").status == 405


def test_predict_keeps_its_routes_if_other_methods_are_served_too(server: Server) -> None:
    with server.client() as client:
        for path in ("/words", "/v1/words"):
            assert client.post(path, "abc").json() == "cba"
        for path in ("/v1/words/letters", "/words.letters"):
            assert client.post(path, "abc").json() == 3


def test_items_of_two_methods_never_share_a_batch(server: Server) -> None:
    squares = [{"size": 1 + number % 2} for number in range(200)]
    with server.client() as client, server.client() as other:
        for _ in range(5):
            answers = client.post("/clip/embed_square/batch", squares).json()["outcomes"]
            assert [answer["value"]["size"] for answer in answers] == [square["size"] for square in squares]
            assert {answer["value"]["sizes"] for answer in answers} == {1}
            assert {answer["value"]["loads"] for answer in answers} == {1}  # one copy of the model
            texts = other.post("/clip/embed_text/batch", ["a"] * 100).json()
            assert texts["failed"] == 0


def test_one_bad_item_fails_alone_whatever_its_method(server: Server) -> None:
    with server.client() as client:
        outcomes = client.post("/v1/words/letters/batch", ["a", "", "ccc"]).json()["outcomes"]
        assert [outcome.get("value") for outcome in outcomes] == [1, None, 3]
        assert client.post("/words", "").json() == ""


def test_a_method_with_a_task_is_a_model_of_the_openai_api(server: Server) -> None:
    with client_of(server) as client:
        assert [model.id for model in client.models.list().data] == ["clip.embed_text"]
        answer = client.embeddings.create(model="clip.embed_text", input=["abc", "d"])
        assert [vector.embedding for vector in answer.data] == [[3.0, 1.0], [1.0, 1.0]]


def test_each_method_is_a_model_of_the_open_inference_protocol(server: Server) -> None:
    with server.client() as client:
        described = client.get("/v2/models/clip.embed_text").json()
        assert (described["name"], described["inputs"][0]["name"]) == ("clip.embed_text", "texts")
        assert client.get("/v2/models/clip.embed_text/ready").status == 200
        inputs = [{"name": "texts", "shape": [2], "datatype": "BYTES", "data": ["abc", "d"]}]
        answer = client.post("/v2/models/clip.embed_text/infer", {"inputs": inputs}).json()
        assert answer["outputs"][0]["data"] == [3.0, 1.0, 1.0, 1.0]


def test_pages_show_methods_by_their_paths(server: Server) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
        paths = document["paths"]
        assert {"/clip/embed_text", "/clip/embed_text/batch", "/v1/words/letters", "/words", "/v1/words"} <= set(paths)
        assert not {"/clip", "/clip.embed_text"} & set(paths)
        ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
        assert len(ids) == len(set(ids))
        assert paths["/clip/embed_text"]["post"]["summary"] == "Return the vector of each text."
        assert "POST /clip/embed_square" in client.get("/").json()["routes"]
        deployments = client.get("/config").json()["deployments"]
        assert {"clip.embed_text", "clip.embed_square", "words", "words.letters"} == set(deployments)
        metrics = client.get("/metrics").body.decode()
    assert 'deployment="clip.embed_text"' in metrics
    assert 'jitney_ready_replicas{deployment="clip"} 1' in metrics


def test_options_are_those_of_the_class(serve: Serve) -> None:
    server = serve("clip.py", arguments=("--set", "clip.replicas=2", "--set", "clip.max_batch_size=2"))
    with server.client() as client:
        options = client.get("/config").json()["deployments"]
        assert options["clip.embed_text"]["options"]["max_batch_size"] == 2
        assert options["words"]["options"]["replicas"] == 1
        assert client.post("/clip/embed_square/batch", [{"size": 2}] * 50).json()["failed"] == 0


def test_what_warm_up_measured_is_known_of_each_method(serve: Serve) -> None:
    learned = serve("clip.py").get("/config").json()["deployments"]["clip.embed_text"]["batches"]
    groups = {(group["group"], group["batches_measured"]) for group in learned["groups"]}
    assert groups == {("embed_text", 0), ("embed_square, 2", 0)}
