"""Shutdown: accepted requests are answered, and no process is left behind."""

import http.client
import os
import signal
from pathlib import Path

import pytest
from harness import Client, Serve, until


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_fails_no_accepted_request(serve: Serve, stop: signal.Signals) -> None:
    server = serve("sleepy.py", arguments=("--set", "sleepy.max_batch_size=16"))
    items = [f"item-{n}" for n in range(150)]
    answers = server.submit_held("/sleepy", items)
    server.process.send_signal(stop)
    with server.client() as client:

        def draining() -> bool:
            try:
                return client.get("/readyz").status == 503
            except (OSError, http.client.HTTPException):
                client.close()
                return True  # it accepts nothing new, which is later in the same story

        until(draining, "the server says that it is not ready")
    server.open_gate()
    assert [answer.result().json() for answer in answers] == [item[::-1] for item in ["blocker", *items]]
    assert server.wait_exit() == 0
    server.assert_nobody_left()


def test_a_signal_to_every_process_at_once_fails_no_accepted_request(serve: Serve) -> None:
    """As systemd and container runtimes stop a service: front and workers get SIGTERM together."""
    options = ("max_batch_size=16", "replicas=2", "retry=false")  # a worker that ends would lose what it computes
    server = serve("sleepy.py", arguments=tuple(f"--set=sleepy.{option}" for option in options))
    items = [f"item-{n}" for n in range(100)]
    server.shut_gate()
    answers = [server.submit("/sleepy", item) for item in items]
    server.wait_inside(len(items))
    until(lambda: len(server.calls()) >= 2, "both workers compute")
    workers = server.workers()
    assert len(workers) == 2
    for pid in [*workers, server.process.pid]:
        os.kill(pid, signal.SIGTERM)
    server.open_gate()
    assert [answer.result().json() for answer in answers] == [item[::-1] for item in items]
    assert set(server.computed().values()) == {1}
    assert server.wait_exit() == 0
    server.assert_nobody_left()


def test_models_are_closed_and_one_that_does_not_return_is_not_waited_for(serve: Serve) -> None:
    server = serve("closing.py")
    assert server.post("/closing", "a").json() == "a"
    server.terminate()
    assert server.wait_exit() == 0
    server.assert_nobody_left()
    assert server.log().count("closing was closed (main thread: True)") == 1
    assert server.log().count("stuck begins to close") == 1


def is_closed(client: Client) -> bool:
    try:
        client.get("/livez")
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_a_deployment_that_calls_another_one_is_answered_to_the_end(serve: Serve, tmp_path: Path) -> None:
    programs = f"unix:{tmp_path}/programs"
    arguments = ("--listen-programs", programs)
    server = serve("relay.py", arguments=arguments, environment={"JITNEY_TEST_PROGRAMS": programs})
    server.shut_gate()
    answer = server.submit("/outer", "a")
    until(lambda: server.calls("inner"), "the inner model is asked")
    server.process.send_signal(signal.SIGTERM)
    with server.client() as client:
        until(lambda: is_closed(client), "the server accepts nothing new")
    server.open_gate()
    assert answer.result().json() == "a!!!"
    assert server.wait_exit() == 0
    server.assert_nobody_left()


def test_idle_connections_do_not_delay_the_end(serve: Serve) -> None:
    server = serve("noop.py")
    clients = [server.client() for _ in range(50)]
    for client in clients:
        assert client.post("/noop", {}).status == 200
    server.terminate()
    assert server.wait_exit(15) == 0
    for client in clients:
        client.close()


@pytest.mark.parametrize("target", ["sleepy.py", "noisy.py"])
def test_workers_end_when_the_front_is_killed(serve: Serve, target: str) -> None:
    name = target.removesuffix(".py")
    server = serve(target, arguments=("--set", f"{name}.replicas=2"))
    assert len(server.workers()) == 2
    assert server.post(f"/{name}", "hello").json() == "olleh"
    os.kill(server.process.pid, signal.SIGKILL)
    server.wait_exit()
    server.assert_nobody_left()


def test_busy_workers_end_too_when_the_front_is_killed(serve: Serve) -> None:
    server = serve("crashing.py")
    server.submit("/crashing", "hang")
    until(server.calls, "the model hangs")
    os.kill(server.process.pid, signal.SIGKILL)
    server.wait_exit()
    server.assert_nobody_left()
