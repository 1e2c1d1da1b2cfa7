"""Many items in one request: they share batches with other requests, fail one by one, and return in order."""

import io
import json

import msgspec
import numpy as np
from harness import JSON, MSGPACK, NPY, Serve, until


def test_a_request_larger_than_a_batch_is_split_and_joined_again(serve: Serve) -> None:
    server = serve("sleepy.py")
    items = [f"item-{number}" for number in range(1000)]
    reply = server.post("/sleepy/batch", items)
    assert (reply.status, reply.headers["x-jitney-failed"]) == (200, "0")
    assert [outcome["value"] for outcome in reply.json()["outcomes"]] == [item[::-1] for item in items]
    sizes = [len(call.items) for call in server.calls()]
    assert sum(sizes) == 1000
    assert max(sizes) == 64
    assert len(sizes) <= 20, "full batches, not single items"


def test_a_request_is_not_refused_for_its_size_alone(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--set", "sleepy.max_queued_items=10"))
    reply = server.post("/sleepy/batch", ["x"] * 500)
    assert (reply.status, reply.json()["failed"]) == (200, 0)


def test_items_of_one_request_ride_with_those_of_others(serve: Serve) -> None:
    server = serve("sleepy.py")
    answers = server.submit_held("/sleepy", ["ahead"])
    many = server.submit("/sleepy/batch", ["a1", "a2", "a3"])
    server.wait_inside(5)
    answers.append(server.submit("/sleepy", "single"))
    server.wait_inside(6)
    server.open_gate()
    assert all(answer.result().status == 200 for answer in answers)
    assert [outcome["value"] for outcome in many.result().json()["outcomes"]] == ["1a", "2a", "3a"]
    assert any({"a1", "a2", "a3", "single"} <= set(call.items) for call in server.calls())


def test_rows_without_elements_are_not_more_than_bytes_came(serve: Serve) -> None:
    server = serve("arrays.py")
    file = io.BytesIO()
    np.save(file, np.zeros((262_144, 0), np.float32))
    refused = server.post("/double/batch", file.getvalue(), {"content-type": NPY})
    assert (refused.status, refused.reason) == (413, "too_large"), refused
    tensor = {"name": "values", "datatype": "FP32", "shape": [262_144, 0], "data": []}
    assert server.post("/v2/models/double/infer", {"inputs": [tensor]}).status == 413


def test_large_requests_hold_no_more_than_may_wait_and_are_refused_as_one(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--set", "sleepy.max_queued_bytes=1000000"))
    server.shut_gate()
    first = server.submit("/sleepy/batch", ["x"] * 2000)
    until(lambda: server.metric("jitney_later_bytes") > 1_000_000, "the first large request is in")
    refused = server.post("/sleepy/batch", ["x"] * 2000)
    assert (refused.status, refused.reason, refused.headers["retry-after"]) == (429, "queue_bytes_full", "1")
    assert "outcomes" not in refused.json()
    small = server.submit("/sleepy/batch", ["x"] * 20)
    server.open_gate()
    assert [reply.result().json()["failed"] for reply in (first, small)] == [0, 0]


def test_bad_items_fail_alone_and_in_their_places(serve: Serve) -> None:
    server = serve("strict.py")
    good, bad, unsold = {"name": "pen", "count": 2}, {"name": "pen", "count": "many"}, {"name": "nothing"}
    reply = server.post("/strict/batch", [good, bad, good, 7, unsold])
    body = reply.json()
    assert (reply.status, body["failed"], reply.headers["x-jitney-failed"]) == (200, 3, "3"), body
    assert ["value" in outcome for outcome in body["outcomes"]] == [True, False, True, False, False]
    assert body["outcomes"][1]["problem"]["field"] == "$.count"
    assert server.post("/strict/batch", [bad, 7]).reason == "invalid_input"


def test_a_deadline_holds_for_every_item_and_a_client_that_leaves_cancels_all(serve: Serve) -> None:
    server = serve("sleepy.py")
    answers = server.submit_held("/sleepy", ["patient"])
    late = server.post("/sleepy/batch", ["l1", "l2"], {"x-request-timeout-ms": "200"})
    assert (late.status, late.reason) == (504, "deadline_exceeded")
    with server.client() as leaver:
        connection = leaver._connection  # pyright: ignore[reportPrivateUsage] -- to leave without having read
        connection.request("POST", "/sleepy/batch", json.dumps(["g1", "g2", "g3"]), {"content-type": JSON})
        server.wait_inside(5)
    server.wait_inside(2)
    server.open_gate()
    assert [answer.result().status for answer in answers] == [200, 200]
    assert not {"l1", "l2", "g1", "g2", "g3"} & set(server.computed())
    until(lambda: server.metric("jitney_requests_total", outcome="cancelled") == 1, "the one who left is counted once")


def test_arrays_go_in_as_rows_and_come_out_as_rows(serve: Serve) -> None:
    server = serve("arrays.py")
    rows = np.arange(400, dtype=np.float32).reshape(100, 4)
    file = io.BytesIO()
    np.save(file, rows)
    given = server.post("/double/batch", file.getvalue(), {"content-type": NPY, "accept": NPY})
    assert (given.status, given.headers["content-type"]) == (200, NPY), given
    assert np.array_equal(np.load(io.BytesIO(given.body)), rows * 2)
    packed = server.post(
        "/double/batch", msgspec.msgpack.encode(rows.tolist()), {"content-type": MSGPACK, "accept": MSGPACK}
    )
    assert [outcome["value"] for outcome in msgspec.msgpack.decode(packed.body)["outcomes"]] == (rows * 2).tolist()
    plain = server.post("/double/batch", rows.tolist())
    assert [outcome["value"] for outcome in plain.json()["outcomes"]] == (rows * 2).tolist()
