"""What a model reads of the requests of its items, over every protocol and from programs."""

import json
from pathlib import Path

import jitney
from harness import Serve

HEADERS = {"x-request-id": "mine-1", "x-tenant": "acme", "cookie": "secret", "x-other": "no"}
SEEN = {"id": "mine-1", "headers": {"x-tenant": "acme"}, "key": ""}


def test_a_model_reads_the_id_and_the_headers_that_it_names(serve: Serve) -> None:
    server = serve("contextual.py")
    assert server.post("/contextual", "a", HEADERS).json() == {"text": "a", **SEEN}
    many = server.post("/contextual/batch", ["a", "b"], HEADERS).json()["outcomes"]
    assert [outcome["value"] for outcome in many] == [{"text": "a", **SEEN}, {"text": "b", **SEEN}]
    tensor = {"name": "texts", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    answer = server.post("/v2/models/contextual/infer", {"inputs": [tensor]}, HEADERS).json()
    assert json.loads(answer["outputs"][0]["data"][0]) == {"text": "a", **SEEN}
    # Another request of the same connection has its own.
    assert server.post("/contextual", "a", {"x-request-id": "other"}).json()["headers"] == {}


def test_items_of_one_batch_have_their_own_requests(serve: Serve) -> None:
    server = serve("contextual.py", arguments=("--set", "contextual.max_batch_delay_ms=60000", "--max-batch-size", "3"))
    asked = [server.submit("/contextual", str(n), {"x-request-id": f"r-{n}", "x-tenant": f"t-{n}"}) for n in range(3)]
    replies = [reply.result() for reply in asked]
    assert [reply.batch_size for reply in replies] == [3, 3, 3]
    for n, reply in enumerate(replies):
        assert reply.json() == {"text": str(n), "id": f"r-{n}", "headers": {"x-tenant": f"t-{n}"}, "key": ""}


def test_a_key_is_known_by_its_name_and_a_program_by_its_id(serve: Serve, tmp_path: Path) -> None:
    keys, place = tmp_path / "keys", f"unix:{tmp_path}/models"
    keys.write_text("alpha-alpha-alpha # team a\nbeta-beta-beta\n")
    arguments = ("--api-keys-file", str(keys), "--listen-programs", place)
    server = serve("contextual.py", arguments=arguments)
    seen = server.post("/contextual", "a", {"authorization": "Bearer alpha-alpha-alpha"})
    assert seen.json()["key"] == "team a"
    assert "alpha" not in seen.body.decode()
    assert server.post("/contextual", "a", {"x-api-key": "beta-beta-beta"}).json()["key"] == ""
    with jitney.connect_sync(place, key="beta-beta-beta") as models:
        assert models.contextual("a", request_id="call-7")["id"] == "call-7"
