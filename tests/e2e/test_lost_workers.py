"""Workers die, stop and misbehave; clients do not notice."""

import json
import os
import re
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from agents import Agents, listening
from harness import Load, Serve, Server, until

HUNG = re.compile(r"crashing/0(@\S+)?: where its threads are, requests mine-1$", re.MULTILINE)
"""At an agent the name of the replica has its machine."""
TWO = ("--set", "sleepy.replicas=2", "--set", "sleepy.max_batch_size=16")


@pytest.fixture(params=["here", "at an agent"])
def anywhere(request: pytest.FixtureRequest, serve: Serve, agents: Agents) -> Serve:
    """Starts a server with its workers on this machine, or with an agent that might be on another one."""
    if request.param == "here":
        return serve

    def start(
        *targets: str,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
        is_gate_shut: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> Server:
        given = listening(agents.secret, *arguments)
        server = serve(
            *targets, arguments=given, environment=environment, wait=False, is_gate_shut=is_gate_shut, prefix=prefix
        )
        agents.start(server, "--places", "2")
        return server.wait_ready() if wait else server

    return start


def test_killed_workers_lose_nothing_and_answer_nothing_twice(anywhere: Serve) -> None:
    server = anywhere("sleepy.py", arguments=TWO)
    load = Load(server, "/sleepy", clients=32)
    for _ in range(4):
        load.wait_for(300)
        victim = server.workers()[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(server.workers()) == 2 and victim not in server.workers(), "the worker is replaced")  # noqa: B023
        until(lambda: server.metric("jitney_ready_replicas", deployment="sleepy") == 2, "both replicas are ready")
    load.wait_for(300)
    load.stop()
    load.assert_all_right()
    assert server.metric("jitney_requests_total", deployment="sleepy", outcome="ok") == load.answered
    assert server.metric("jitney_workers_lost_total", deployment="sleepy") == 4
    assert set(server.computed()) == set(load.replies)


def test_requests_wait_while_all_workers_are_replaced(anywhere: Serve) -> None:
    server = anywhere("sleepy.py", arguments=TWO)
    load = Load(server, "/sleepy", clients=16)
    load.wait_for(100)
    before = server.workers()
    for victim in before:
        os.kill(victim, signal.SIGKILL)
    until(lambda: len(server.workers()) == 2 and not set(before) & set(server.workers()), "both workers are replaced")
    load.wait_for(300)
    load.stop()
    load.assert_all_right()


def test_a_stopped_worker_is_found_and_replaced(anywhere: Serve) -> None:
    server = anywhere("sleepy.py", arguments=TWO)
    load = Load(server, "/sleepy", clients=16)
    load.wait_for(100)
    victim = server.workers()[0]
    os.kill(victim, signal.SIGSTOP)  # its sockets stay open: only silence gives it away
    until(lambda: victim not in server.workers(), "the stopped worker has ended", 30)
    until(lambda: len(server.workers()) == 2, "it is replaced")
    load.wait_for(300)
    load.stop()
    load.assert_all_right()


@pytest.mark.parametrize("deployment", ["crashing", "once"])
def test_an_input_that_hangs_is_refused_although_its_clients_do_not_wait_for_the_end(
    anywhere: Serve, deployment: str
) -> None:
    server = anywhere("crashing.py", arguments=("--set", f"{deployment}.batch_timeout_s=2"))
    path = f"/{deployment}"

    def lost(workers: int) -> None:
        until(lambda: server.metric("jitney_workers_lost_total", deployment=deployment) == workers, "it is given up")
        until(lambda: server.metric("jitney_ready_replicas", deployment=deployment) == 1, "another is ready")

    # The first batch holds them all: items next to the failing one must not be refused.
    beside = [f"item-{n}" for n in range(4)]
    hurried = {"x-request-timeout-ms": "800"}
    server.shut_gate()
    blocker = server.submit(path, "blocker")
    server.wait_inside(1)
    left = [server.submit(path, item, hurried) for item in ["hang", *beside]]
    server.wait_inside(6)
    server.open_gate()
    assert blocker.result().status == 200
    assert [answer.result().status for answer in left] == [504] * 5
    lost(workers=1)
    assert server.post(path, "hang", hurried).status == 504
    lost(workers=2)  # in this one it was alone
    assert server.post(path, "hang", hurried).reason == "quarantined"
    assert [server.post(path, item).json() for item in beside] == [item[::-1] for item in beside]
    assert server.post(path, "hang").reason == "quarantined"
    lost(workers=2)


def test_a_model_that_prints_forks_and_starts_threads_works_and_leaves_nobody(anywhere: Serve) -> None:
    server = anywhere("noisy.py")
    assert server.post("/noisy", "hello").json() == "olleh"
    (worker,) = server.workers()
    child = server.calls("forked")[-1].items[0]
    assert Path(f"/proc/{child}").exists()
    os.kill(worker, signal.SIGKILL)
    # The child holds the worker's end of the link open, so its death must be seen in another way.
    until(lambda: child not in server.family(), "the processes that the model forked have ended too")
    assert server.post("/noisy", "again").json() == "niaga"
    assert worker not in server.workers()


def test_a_front_that_was_stopped_for_a_while_keeps_its_workers(anywhere: Serve) -> None:
    server = anywhere("sleepy.py")
    before = server.workers()
    os.kill(server.process.pid, signal.SIGSTOP)
    threading.Event().wait(8)  # longer than a worker may be silent: that is what is tested
    os.kill(server.process.pid, signal.SIGCONT)
    assert server.post("/sleepy", "hello").json() == "olleh"
    assert server.workers() == before


def test_a_hang_is_reported_with_its_limit_and_with_where_it_hung(anywhere: Serve) -> None:
    server = anywhere("crashing.py", arguments=("--set", "crashing.batch_timeout_s=1"))
    assert server.post("/crashing", "hang", {"x-request-id": "mine-1"}).status == 502
    until(lambda: "worker lost (hung)" in server.log(), "the loss is reported")
    log = server.log()
    assert "a batch ran for longer than batch_timeout_s = 1;" in log
    stacks = log[: log.index("worker lost (hung)")]
    assert HUNG.search(stacks)
    assert "most recent call first" in stacks
    assert "crashing.py" in stacks and "in predict" in stacks, "where it hung is written before the worker is killed"


def test_an_input_that_hangs_alone_hangs_once(anywhere: Serve) -> None:
    server = anywhere("crashing.py", arguments=("--set", "crashing.batch_timeout_s=1"))
    reply = server.post("/crashing", "hang")
    assert (reply.status, reply.reason, reply.headers["x-should-retry"]) == (502, "worker_lost", "false")
    assert "alone for longer than batch_timeout_s = 1" in reply.json()["detail"]
    assert server.post("/crashing", "fine").json() == "enif"
    assert server.computed()["hang"] == 1
    assert server.metric("jitney_workers_lost_total", deployment="crashing", cause="hung") == 1


def test_a_hang_is_one_line_of_a_json_log_with_deployment_replica_and_requests(anywhere: Serve) -> None:
    server = anywhere("crashing.py", arguments=("--set", "crashing.batch_timeout_s=1", "--log-format", "json"))
    assert server.post("/crashing", "hang", {"x-request-id": "mine-1"}).status == 502
    until(lambda: "worker lost (hung)" in server.log(), "the loss is reported")
    line, *_ = [line for line in map(json.loads, server.log().splitlines()) if "stacks" in line]
    assert (line["deployment"], line["replica"], line["request_ids"]) == ("crashing", 0, "mine-1")
    assert HUNG.fullmatch(line["message"])
    assert "in predict" in line["stacks"]
