"""Workers of other machines keep their models: through the loss of their link, and through a restart of the front."""

import signal

from agents import Agents, address_of, listening
from harness import Load, Serve, Server, until
from proxy import proxy

TWO = ("--set", "sleepy.replicas=2", "--set", "sleepy.max_batch_size=16")
LOADED = 2
"""Loads of TWO replicas that each start once."""


def both_ready(server: Server) -> None:
    until(lambda: server.metric("jitney_ready_replicas", deployment="sleepy") == 2, "both replicas are ready")


def loads(server: Server) -> int:
    return len(server.calls("load"))


def test_a_front_that_was_killed_and_started_again_has_its_workers_back_and_loads_nothing(
    serve: Serve, agents: Agents
) -> None:
    front = first = serve("sleepy.py", arguments=listening(agents.secret, *TWO), wait=False)
    address = address_of(first)
    # Free places, in which a front that does not wait for its workers would start others.
    running = [agents.start(first, "--places", "3") for _ in range(2)]
    first.wait_ready()
    both_ready(first)
    before = sorted(pid for agent in running for pid in agent.workers())
    again = listening(agents.secret, *TWO, "--port", str(first.port), address=address)
    for restarts in range(1, 3):
        front.process.kill()
        front.process.wait()
        front = serve("sleepy.py", arguments=again)
        both_ready(front)
        assert front.post("/sleepy", f"hello {restarts}").json() == f"hello {restarts}"[::-1]
        until(lambda: front.log().count("an agent has joined") == len(running), "the agents are back")  # noqa: B023
    load = Load(front, "/sleepy", clients=16)
    load.wait_for(200)
    load.stop()
    load.assert_all_right()
    assert sorted(pid for agent in running for pid in agent.workers()) == before
    assert loads(first) == LOADED
    # The places of workers that came back are known: their agents can end them.
    assert [agent.terminate() for agent in running] == [0, 0]


def test_an_agent_that_is_to_end_while_its_front_is_away_lets_its_workers_finish(serve: Serve, agents: Agents) -> None:
    first = serve("sleepy.py", arguments=listening(agents.secret), wait=False)
    address = address_of(first)
    agent = agents.start(first)
    first.wait_ready()
    workers = agent.workers()
    first.process.kill()
    first.process.wait()
    agent.process.send_signal(signal.SIGTERM)
    until(lambda: "leaving: workers finish what they have" in agent.log(), "the agent is about to end")
    assert len(workers) == 1
    assert agent.workers() == workers
    serve("sleepy.py", arguments=listening(agents.secret, "--port", str(first.port), address=address), wait=False)
    assert agent.wait_exit() == 0
    assert agent.log().count("joined the server") == 2


def test_workers_whose_links_are_cut_under_load_rejoin_with_their_models(serve: Serve, agents: Agents) -> None:
    with proxy() as wire:
        arguments = listening(agents.secret, *TWO, "--workers-advertise", wire.address)
        server = serve("sleepy.py", arguments=arguments, wait=False)
        wire.lead_to(address_of(server))
        agents.start(server, "--places", "2")
        server.wait_ready()
        load = Load(server, "/sleepy", clients=16)
        for cuts in range(1, 4):
            load.wait_for(100)
            both_ready(server)
            assert wire.cut() == 2
            until(lambda: wire.connections == 2 + 2 * cuts, "both have dialled again")  # noqa: B023
            both_ready(server)
        load.wait_for(100)
        load.stop()
    load.assert_all_right()
    assert loads(server) == LOADED
    assert server.metric("jitney_workers_lost_total", deployment="sleepy", cause="away") == 6
    assert server.metric("jitney_workers_lost_total", deployment="sleepy") == 6
    assert set(server.computed()) == set(load.replies)


def test_workers_of_other_options_are_ended_by_a_front_that_was_started_again(serve: Serve, agents: Agents) -> None:
    first = serve("sleepy.py", arguments=listening(agents.secret), wait=False)
    address = address_of(first)
    agent = agents.start(first)
    first.wait_ready()
    (before,) = agent.workers()
    first.process.kill()
    first.process.wait()
    changed = listening(agents.secret, "--set", "sleepy.max_batch_size=3", address=address)
    second = serve("sleepy.py", arguments=changed)
    assert "a worker that came back from " in second.log()
    assert "sleepy.py was started with other options" in second.log()
    assert before not in agent.workers()
    assert loads(first) == 2
    assert agent.terminate() == 0
