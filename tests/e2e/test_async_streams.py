"""Models whose `predict` is an asynchronous generator: answers in parts, side by side, over HTTP."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from event_streams import EVENTS, failure, stream
from harness import Reply, Serve, Server, until


def talk(server: Server, text: str) -> Reply:
    return server.post("/talk", {"text": text})


def ends(server: Server) -> list[str]:
    return [call.items[0] for call in server.calls("end")]


def test_parts_and_whole_answers(serve: Serve) -> None:
    server = serve("talking.py:Talk")
    assert talk(server, "hello").json() == "hello"
    body = server.post("/talk", {"text": "hey"}, {"accept": EVENTS}).body.decode()
    end = 'event: end\ndata: {"reason":"length","usage":{"input":1,"output":3}}\n\n'
    assert body == 'data: "h"\n\ndata: "e"\n\ndata: "y"\n\n' + end
    texts = [f"text-{number}" for number in range(40)]
    with ThreadPoolExecutor(20) as threads:
        assert [answer.json() for answer in threads.map(partial(talk, server), texts)] == texts
    running = most = 0
    for call in server.calls("begin", "end"):
        running += 1 if call.kind == "begin" else -1
        most = max(most, running)
    assert running == 0
    assert most <= 4, "max_batch_size"
    assert server.metric("jitney_joins_total", deployment="talk") == 42
    learned = server.get("/config").json()["deployments"]["talk"]["batches"]["side_by_side"]
    assert learned["active_items"] == 0
    assert learned["item_ms"] > 0


def test_an_item_joins_while_another_runs_and_ends_long_before_it(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py:Talk")
    gate = tmp_path / "gate"
    with stream(server, "/talk", {"text": "long one", "gate": str(gate)}) as first:
        assert first.readline() == b'data: "l"\n', "it runs, and waits before its second letter"
        for number in range(20):
            assert talk(server, f"short {number}").json() == f"short {number}"
        assert "long one" not in ends(server)
        gate.touch()
        assert first.read().decode().endswith('"usage":{"input":1,"output":8}}\n\n')


def test_a_failing_item_fails_alone(serve: Serve) -> None:
    server = serve("talking.py:Talk")
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(partial(talk, server), ["abcd", "ab!", "efgh", "!jkl"]))
    assert [answer.status for answer in answers] == [200, 500, 200, 500]
    assert [answers[place].json() for place in (0, 2)] == ["abcd", "efgh"]
    with stream(server, "/talk", {"text": "ab!"}) as reply:
        assert failure(reply) == "model_failed"


def test_a_client_that_leaves_in_mid_stream_ends_its_generator(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py:Talk")
    gate = tmp_path / "gate"
    with stream(server, "/talk", {"text": "gone", "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: "g"\n'
    endless = "x" * 200_000
    with stream(server, "/talk", {"text": endless}) as reply:
        assert reply.readline() == b'data: "x"\n'
    until(lambda: {"gone", endless} <= {*ends(server)}, "both have ended")
    assert {"gone", endless} <= {call.items[0] for call in server.calls("left")}, "before their last letters"
    until(lambda: server.metric("jitney_requests_total", deployment="talk", outcome="cancelled") == 2, "counted")
    assert talk(server, "abc").json() == "abc"


def test_a_deadline_of_the_clients_ends_its_generator(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py:Talk")
    late = {"text": "late", "gate": str(tmp_path / "gate")}
    with stream(server, "/talk", late, **{"x-request-timeout-ms": "300"}) as reply:
        assert failure(reply) == "deadline_exceeded"
    until(lambda: "late" in ends(server), "its generator was closed")


def test_a_killed_worker_ends_streams_with_an_error_and_runs_the_others_again(serve: Serve, tmp_path: Path) -> None:
    server = serve("talking.py:Talk")
    gate = tmp_path / "gate"
    with stream(server, "/talk", {"text": "first", "gate": str(gate)}) as reply:
        assert reply.readline() == b'data: "f"\n'
        whole = server.submit("/talk", {"text": "whole", "gate": str(gate)})
        until(lambda: any(call.items == ["whole"] for call in server.calls("begin")), "it runs")
        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)
        gate.touch()
        assert failure(reply) == "worker_lost"
    answer = whole.result()
    assert (answer.status, answer.json()) == (200, "whole"), "no part of it had left"


def test_the_context_and_printed_lines_are_those_of_each_item(serve: Serve) -> None:
    server = serve("talking.py:tenants")

    def of(tenant: str) -> object:
        return server.post("/tenants", "four", {"x-tenant": tenant}).json()

    names = [f"tenant-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(of, names)) == [f"{name} " * 4 for name in names]


def test_the_whole_event_loop_in_the_process_of_the_server(serve: Serve) -> None:
    server = serve("talking.py:Talk", arguments=("--inline",))
    body = server.post("/talk", {"text": "ab"}, {"accept": EVENTS}).body.decode()
    assert body.startswith('data: "a"\n\ndata: "b"\n\nevent: end\n')
    assert talk(server, "cd").json() == "cd"


def test_methods_of_both_kinds_share_a_worker(serve: Serve) -> None:
    server = serve("talking.py:Both")
    server.shut_gate()
    waits = server.submit("/both/kill", "waits")
    until(lambda: server.calls("kill"), "it runs")
    chat = {"model": "both", "messages": [{"role": "user", "content": "to be"}]}
    answer = server.post("/v1/chat/completions", chat).json()
    assert (answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]) == ("to be ", "length")
    body = server.post("/v1/chat/completions", {**chat, "stream": True}).body.decode()
    assert [json.loads(line[6:])["choices"][0]["delta"].get("content") for line in body.splitlines() if "be " in line]
    assert body.endswith("data: [DONE]\n\n")
    assert not waits.done()
    server.open_gate()
    assert waits.result().json() == 5


def test_an_item_that_ends_its_worker_is_found_and_the_others_are_answered(serve: Serve) -> None:
    server = serve("talking.py:Both")
    server.shut_gate()
    others = [server.submit("/both/kill", f"{number}") for number in range(3)]
    until(lambda: len(server.calls("kill")) == 3, "they run")
    kill = server.submit("/both/kill", "kill")
    until(lambda: server.metric("jitney_workers_lost_total") >= 1, "it took the worker with it")
    server.open_gate()
    assert kill.result().reason == "worker_lost"
    assert [other.result().json() for other in others] == [1, 1, 1]
    assert server.post("/both/kill", "kill").reason == "quarantined"
