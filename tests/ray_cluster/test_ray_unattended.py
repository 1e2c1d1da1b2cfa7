"""A machine that is lost, and actors whose front was killed.

Last of all files here: the machine stays lost, and a lease takes a minute, which the tests before it fill.
"""

import threading
from collections.abc import Callable

from harness import Server, until
from nodes import Nodes
from watching import Start, actors, answers_of


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


def test_a_machine_is_killed_under_load_and_no_request_is_lost(start: Start, nodes: Nodes) -> None:
    server = start("--replicas", "2")
    clients = Asking(server)
    clients.until(lambda: {answer["node"] for answer in clients.answers} == {"m1", "m2"}, "both machines answer")
    nodes.kill("m2")
    clients.until(lambda: "worker lost" in server.log(), "the front notices")
    clients.answers.clear()
    replaced: Callable[[], bool] = lambda: len({answer["pid"] for answer in clients.answers}) == 2  # noqa: E731
    clients.until(replaced, "another replica answers, on the machine that is left")
    assert {answer["node"] for answer in clients.answers} == {"m1"}
    clients.stop()


def test_actors_end_by_themselves_when_no_front_answers_for_their_lease(orphans: list[str]) -> None:
    assert orphans
    until(lambda: not set(orphans) & set(actors()), "they end a minute after their front", 90)
