"""What is lost: the provider, a machine."""

import os
import signal
import threading
from collections.abc import Callable

import pytest
from harness import Server, until
from nodes import Nodes
from watching import Start, actors, answers_of, provider

pytestmark = pytest.mark.usefixtures("orphans")


class Asking:
    """Clients that ask until they are stopped; every answer is checked against its item."""

    def __init__(self, server: Server) -> None:
        self.answers: list[dict[str, object]] = []
        self._is_over = threading.Event()
        self._server = server
        self._thread = server.submit_call(self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self.answers += answers_of(self._server, 8)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def either() -> bool:
            if self._thread.done():
                self._thread.result()  # what went wrong
            return condition()

        until(either, what)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.result()


def test_without_its_provider_the_server_goes_on_and_the_next_one_takes_the_actors_over(start: Start) -> None:
    server = start("--replicas", "2")
    before = actors()
    workers = {answer["pid"] for answer in answers_of(server, 40)}
    (first,) = provider(server)
    os.kill(first, signal.SIGKILL)
    assert len(answers_of(server, 8)) == 8
    until(lambda: "provider of Ray has ended" in server.log(), "the front says so")
    until(lambda: server.log().count("connected to the Ray cluster") == 2, "the next provider is connected")
    assert provider(server) != [first]
    assert actors() == before
    assert {answer["pid"] for answer in answers_of(server, 40)} == workers
    assert server.metric("jitney_workers_lost_total", deployment="placed") == 0


def test_a_machine_is_killed_under_load_and_no_request_is_lost(start: Start, nodes: Nodes) -> None:
    server = start("--replicas", "2")
    clients = Asking(server)
    clients.until(lambda: {answer["node"] for answer in clients.answers} == {"m1", "m2"}, "both machines answer")
    nodes.kill("m2")
    try:
        clients.until(lambda: "worker lost" in server.log(), "the front notices")
        clients.answers.clear()
        replaced: Callable[[], bool] = lambda: len({answer["pid"] for answer in clients.answers}) == 2  # noqa: E731
        clients.until(replaced, "another replica answers, on the machine that is left")
        assert {answer["node"] for answer in clients.answers} == {"m1"}
        clients.stop()
    finally:
        nodes.start_node("m2")
