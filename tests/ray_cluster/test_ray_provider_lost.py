"""The provider is lost, and the server goes on."""

import os
import signal

import pytest
from harness import until
from watching import Start, actors, answers_of, provider

pytestmark = pytest.mark.usefixtures("orphans")


def test_without_its_provider_the_server_goes_on_and_the_next_one_takes_the_actors_over(start: Start) -> None:
    server = start("--replicas", "2")
    before = actors()
    workers = {answer["pid"] for answer in answers_of(server, 40)}
    (first,) = provider(server)
    os.kill(first, signal.SIGKILL)
    assert len(answers_of(server, 8)) == 8
    until(lambda: "connection to the Ray cluster has ended" in server.log(), "the front says so")
    until(lambda: server.log().count("connected to the Ray cluster") == 2, "the next provider is connected")
    assert provider(server) != [first]
    assert actors() == before
    assert {answer["pid"] for answer in answers_of(server, 40)} == workers
    assert server.metric("jitney_workers_lost_total", deployment="placed") == 0
