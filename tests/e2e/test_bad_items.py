"""One bad item fails alone, whatever is bad about it."""

import json

import pytest
from harness import Serve, until


def test_an_invalid_item_in_a_full_batch_fails_alone_and_is_told_its_field(serve: Serve) -> None:
    server = serve("strict.py")
    items: list[dict[str, object]] = [{"name": f"thing-{n}", "count": n} for n in range(63)]
    items.insert(31, {"name": "bad", "count": "three"})
    answers = server.submit_held("/strict", items, blocker={"name": "blocker"})
    server.open_gate()
    replies = [answer.result() for answer in answers[1:]]
    bad = replies.pop(31)
    assert (bad.status, bad.reason) == (422, "invalid_input")
    assert "count" in bad.json()["detail"] + str(bad.json().get("field"))
    assert [reply.json() for reply in replies] == [f"{n} thing-{n}" for n in range(63)]
    assert "bad" not in server.computed()
    assert len(server.calls()) == 2


def test_an_exception_at_an_index_fails_that_item_without_another_call(serve: Serve) -> None:
    server = serve("strict.py")
    items = [{"name": "nothing" if n == 5 else f"thing-{n}"} for n in range(20)]
    answers = server.submit_held("/strict", items, blocker={"name": "blocker"})
    server.open_gate()
    replies = [answer.result() for answer in answers[1:]]
    refused = replies.pop(5)
    assert refused.status == 422
    assert "this product is not sold" in refused.json()["detail"]
    assert all(reply.status == 200 for reply in replies)
    assert len(server.calls()) == 2


def test_the_item_that_makes_predict_raise_is_found_and_63_are_answered(serve: Serve) -> None:
    server = serve("crashing.py")
    items = [f"item-{n}" for n in range(63)]
    items.insert(40, "raise")
    answers = server.submit_held("/crashing", items)
    server.open_gate()
    replies = dict(zip(items, [answer.result() for answer in answers[1:]], strict=True))
    failed = replies.pop("raise")
    assert (failed.status, failed.reason) == (500, "model_failed")
    assert failed.headers["x-should-retry"] == "false"
    assert "cannot do" not in failed.json()["detail"] and "the server's log says why" in failed.json()["detail"]
    line = f"request {failed.headers['x-request-id']}: model_failed: RuntimeError: the model cannot do raise"
    until(lambda: line in server.log(), "the log says why, with the id of the request")
    # The traceback of the worker has the same id.
    until(lambda: f"(request {failed.headers['x-request-id']})" in server.log(), "the worker names the request")
    assert {item: reply.json() for item, reply in replies.items()} == {item: item[::-1] for item in replies}
    extra = len(server.calls()) - 2  # the blocker, and the batch itself
    assert extra <= 12, f"{extra} extra calls of predict"


def test_a_second_try_gets_the_input_that_the_first_has_written_over(serve: Serve) -> None:
    server = serve("overwriting.py")
    items = [[-1.0, 1.0] if n == 9 else [float(n), 1.0] for n in range(16)]
    answers = server.submit_held("/overwrite", items, blocker=[0.0, 0.0])
    server.open_gate()
    replies = [answer.result() for answer in answers[1:]]
    assert replies.pop(9).status == 500
    assert [reply.json() for reply in replies] == [[2.0 * n, 2.0] for n in range(16) if n != 9]
    assert len(server.calls()) > 2, "the batch was computed in parts"


def test_clients_read_what_a_model_raised_only_where_that_is_asked_for(serve: Serve) -> None:
    server = serve("crashing.py", arguments=("--show-errors",))
    assert server.post("/crashing", "raise").json()["detail"] == "RuntimeError: the model cannot do raise"


def test_a_log_of_json_has_the_request_and_the_reason_as_fields(serve: Serve) -> None:
    server = serve("crashing.py", arguments=("--log-format", "json"))
    failed = server.post("/crashing", "raise")

    def lines() -> list[dict[str, object]]:
        entries = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry.get("request_id") == failed.headers["x-request-id"]]

    until(lambda: len(lines()) == 2, "the worker and the front say it")
    worker, front = sorted(lines(), key=lambda entry: "reason" in entry)
    assert "Traceback" in str(worker["traceback"])
    assert front["reason"] == "model_failed" and "cannot do raise" in str(front["message"])


@pytest.mark.parametrize(
    ("fault", "expected", "got"),
    [("few", "4", "3"), ("many", "4", "5"), ("none", "list", "None"), ("type", "str", "object")],
)
def test_a_wrong_output_is_named_and_the_next_batch_is_unharmed(
    serve: Serve, fault: str, expected: str, got: str
) -> None:
    # `fixed` with a long delay: exactly four share a batch.
    options = {"policy": "fixed", "max_batch_size": 4, "max_batch_delay_ms": 60000}
    arguments = tuple(word for name, value in options.items() for word in ("--set", f"wrong_output.{name}={value}"))
    server = serve("wrong_output.py", arguments=arguments)
    futures = [server.submit("/wrong_output", item) for item in ("a", "b", "c", fault)]
    for reply in (future.result() for future in futures):
        assert (reply.status, reply.reason) == (500, "invalid_output")
        assert expected in reply.json()["detail"], reply.json()
        assert got in reply.json()["detail"], reply.json()
    futures = [server.submit("/wrong_output", item) for item in ("one", "two", "three", "four")]
    assert [future.result().json() for future in futures] == ["eno", "owt", "eerht", "ruof"]


@pytest.mark.parametrize(
    ("item", "deaths"),
    # In its batch and alone; a SIGKILL may have come from outside, so that it takes one more.
    [("crash", 2), ("kill", 3)],
)
def test_an_item_that_kills_workers_is_convicted_alone_and_refused_for_a_while(
    serve: Serve, item: str, deaths: int
) -> None:
    server = serve("crashing.py")
    items = [f"item-{n}" for n in range(12)]
    answers = server.submit_held("/crashing", [*items, item])
    server.open_gate()
    *others, failed = [answer.result() for answer in answers[1:]]
    assert [reply.json() for reply in others] == [item[::-1] for item in items]
    assert (failed.status, failed.reason) == (502, "worker_lost")
    assert server.computed()[item] == deaths
    again = server.post("/crashing", item)
    assert (again.status, again.reason) == (502, "quarantined")
    assert server.computed()[item] == deaths
    assert server.post("/crashing", "fine").json() == "enif"


def test_what_must_not_run_twice_does_not(serve: Serve) -> None:
    server = serve("crashing.py")
    answers = server.submit_held("/once", ["a", "b", "kill", "c"])
    server.open_gate()
    blocker, *replies = [answer.result() for answer in answers]
    assert blocker.status == 200
    assert [(reply.status, reply.reason) for reply in replies] == [(502, "worker_lost")] * 4
    assert max(server.computed().values()) == 1


def test_a_hang_is_ended_and_its_batch_is_answered(serve: Serve) -> None:
    server = serve("crashing.py", arguments=("--set", "crashing.batch_timeout_s=2"))
    answers = server.submit_held("/crashing", ["a", "hang", "b"])
    server.open_gate()
    _, first, hung, second = [answer.result() for answer in answers]
    assert [first.json(), second.json()] == ["a", "b"]
    assert (hung.status, hung.reason) == (502, "worker_lost")
    assert server.post("/crashing", "fine").json() == "enif"


def test_errors_that_cannot_be_said_leave_the_worker_alive(serve: Serve) -> None:
    server = serve("odd_errors.py")
    with server.client() as client:
        pid = client.post("/odd_errors", {"text": "a"}).json()["pid"]
        for text, status, reason in (
            ("surrogate", 500, "model_failed"),
            ("mute", 500, "model_failed"),
            ("refused", 422, "invalid_input"),
        ):
            reply = client.post("/odd_errors", {"text": text})
            assert (reply.status, reply.reason) == (status, reason)
            assert len(reply.body) < 10_000
        assert client.post("/odd_errors", {"text": "a"}).json()["pid"] == pid


def test_a_model_says_when_to_come_back(serve: Serve) -> None:
    with serve("odd_errors.py").client() as client:
        reply = client.post("/odd_errors", {"text": "busy"})
    assert (reply.status, reply.reason, reply.headers["retry-after"]) == (429, "queue_full", "7")


def test_an_item_that_is_to_come_later_takes_no_other_along(serve: Serve) -> None:
    with serve("odd_errors.py").client() as client:
        reply = client.post("/odd_errors/batch", [{"text": text} for text in ("later", "a", "b")])
    problem, *values = reply.json()["outcomes"]
    assert (reply.status, problem["problem"]["reason"], len(values)) == (200, "queue_full", 2)
    assert all("value" in value for value in values)


def test_the_log_names_the_requests_that_failed_by_a_fault(serve: Serve) -> None:
    server = serve("odd_errors.py")
    with server.client() as client:
        client.post("/odd_errors", {"text": "refused"}, {"x-request-id": "refused-1"})
        client.post("/odd_errors", {"text": "mute"}, {"x-request-id": "alone-1"})
        items = [{"text": "a"}, {"text": "surrogate"}]
        assert client.post("/odd_errors/batch", items, {"x-request-id": "among-1"}).status == 200
    for line in ("request alone-1: model_failed: Mute", "request among-1: model_failed: ValueError: file"):
        until(lambda line=line: line in server.log(), f"the log says: {line}")
    assert "refused-1" not in server.log()


def test_a_group_field_may_be_left_out_if_its_default_is_null(serve: Serve) -> None:
    server = serve("odd_errors.py")
    with server.client() as client:
        for item, seed in (({"text": "a"}, None), ({"text": "a", "seed": None}, None), ({"text": "a", "seed": 3}, 3)):
            assert client.post("/odd_errors", item).json()["seed"] == seed
        refused = client.post("/odd_errors", {"seed": 3})
        assert (refused.status, refused.reason) == (422, "invalid_input")


def test_a_batch_that_is_too_large_for_the_device_is_computed_in_parts_and_later_ones_are_smaller(serve: Serve) -> None:
    server = serve("small.py")
    first = server.submit_held("/small", [f"item-{n}" for n in range(16)])
    server.open_gate()
    assert [answer.result().json() for answer in first[1:]] == [f"item-{n}"[::-1] for n in range(16)]
    told = server.get("/config").json()["deployments"]["small"]["batches"]["last_batches"]
    assert max(batch["items"] for batch in told) == 16
    for _ in range(2):  # each batch that does not fit halves what is taken to fit
        answers = server.submit_held("/small", [f"again-{n}" for n in range(16)])
        server.open_gate()
        assert all(answer.result().status == 200 for answer in answers)
    told = server.get("/config").json()["deployments"]["small"]["batches"]
    assert max(batch["items"] for batch in told["last_batches"][:2]) <= 4
    (group,) = told["groups"]
    assert (group["group"], group["most_items"]) == ("", 4)
    assert 0 < group["tried_again_in_s"] <= 60


def test_an_answer_above_max_answer_bytes_fails_alone_and_nothing_else_is_lost(serve: Serve) -> None:
    server = serve("wide.py")
    outcomes = server.post("/wide/batch", [10, 8_000_000, 1_000_000]).json()
    assert outcomes["failed"] == 1
    problem = outcomes["outcomes"][1]["problem"]
    assert (problem["status"], problem["reason"]) == (500, "invalid_output")
    assert "8000000 bytes, allowed are 1000000 (max_answer_bytes)" in problem["detail"]
    alone = server.post("/wide", 1_000_001)
    assert (alone.status, alone.reason) == (500, "invalid_output")
    assert len(server.post("/wide", 1_000_000).body) == 1_000_000
