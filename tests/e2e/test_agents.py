"""Workers of other machines: agents join a server, and its replicas run there. All on loopback."""

import shutil
import subprocess
from pathlib import Path

import pytest
from agents import Agents, address_of, listening, write_secret
from harness import Load, Serve, until

TWO = ("--set", "sleepy.replicas=2", "--set", "sleepy.max_batch_size=16")


def test_a_server_without_local_workers_waits_for_an_agent_and_is_served_by_it(serve: Serve, agents: Agents) -> None:
    server = serve("printing.py", arguments=listening(agents.secret), wait=False)
    address_of(server)
    reasons = until(lambda: server.get("/readyz").json()["reasons"][1:], "the server says what it waits for")
    assert reasons == ["a worker waits for a place: no agent has joined"]
    agent = agents.start(server)
    server.wait_ready()
    assert len(agent.workers()) == 1
    assert server.workers() == agent.workers()
    assert server.post("/printing", "a").status == 200
    place = {"deployment": "printing", "replica": "0"}
    # Agents join over TCP: the round trip is measured, also on this machine.
    until(lambda: 0 < server.metric("jitney_link_round_trip_seconds", **place) < 1, "the round trip is measured")
    assert agent.terminate() == 0
    until(lambda: server.get("/readyz").status == 503, "the server has no replica any more")
    (reason,) = server.get("/readyz").json()["reasons"]
    assert reason.endswith("0 of 1 replicas are ready: waits for a place: no agent has joined")


def test_all_agents_are_replaced_under_load_and_nothing_is_lost(serve: Serve, agents: Agents) -> None:
    server = serve("sleepy.py", arguments=listening(agents.secret, *TWO), wait=False)
    running = [agents.start(server), agents.start(server)]
    server.wait_ready()
    load = Load(server, "/sleepy", clients=16)
    for agent in running:
        load.wait_for(100)
        agents.start(server)
        assert agent.terminate() == 0
        until(lambda: server.metric("jitney_ready_replicas", deployment="sleepy") == 2, "both replicas are ready")
    load.wait_for(100)
    load.stop()
    load.assert_all_right()
    assert server.metric("jitney_workers_lost_total", deployment="sleepy", cause="left") == 2
    assert set(server.computed().values()) == {1}


def test_a_replica_gets_the_devices_of_its_place_and_no_others(serve: Serve, agents: Agents) -> None:
    arguments = listening(agents.secret, "--set", "visible.num_gpus=2", "--set", "visible.replicas=2")
    server = serve("visible.py", arguments=arguments, wait=False)
    too_few = agents.start(server, "--devices", "cuda:3")
    agents.start(server, "--devices", "cuda:4,cuda:5,cuda:6,cuda:7", "--places", "2")
    server.wait_ready()
    until(lambda: server.metric("jitney_ready_replicas", deployment="visible") == 2, "both replicas are ready")
    seen = sorted(call.items for call in server.calls("load"))
    assert seen == [["4,5", "4,5", "cuda:0"], ["6,7", "6,7", "cuda:0"]]
    until(lambda: not too_few.workers(), "the worker that imported there has ended")


def certificates(folder: Path) -> list[Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=front"
        " -addext subjectAltName=IP:127.0.0.1 -keyout"
    )
    subprocess.run([*command.split(), str(key), "-out", str(cert)], check=True, capture_output=True)
    return [cert, key]


@pytest.mark.parametrize("how", ["off", "certificates"])
def test_workers_connect_without_tls_and_with_certificates_of_the_operator(
    serve: Serve, agents: Agents, tmp_path: Path, how: str
) -> None:
    front = agent = "off"
    files: list[Path] = []
    if how == "certificates":
        files = certificates(tmp_path)
        # The same files elsewhere: those that the front names do not exist on other machines.
        (elsewhere := tmp_path / "elsewhere").mkdir()
        front, agent = (",".join(str(folder / file.name) for file in files) for folder in (tmp_path, elsewhere))
        for file in files:
            shutil.copy(file, elsewhere)
    server = serve("sleepy.py", arguments=listening(agents.secret, "--workers-tls", front), wait=False)
    address_of(server)
    for file in files:
        file.unlink()
    agents.start(server, "--workers-tls", agent)
    server.wait_ready()
    assert server.post("/sleepy", "hello").json() == "olleh"
    other = agents.start(server)
    until(lambda: "tcp:127.0.0.1" in other.log(), "an agent that protects its connection otherwise does not get in")
    assert "joined the server" not in other.log()


def test_an_agent_with_another_secret_ends_and_says_so(serve: Serve, agents: Agents, tmp_path: Path) -> None:
    server = serve("sleepy.py", arguments=listening(agents.secret), wait=False)
    (other := tmp_path / "other").mkdir()
    agent = agents.start(server, secret=write_secret(other, "t" * 40))
    assert agent.wait_exit() == 78
    assert "the other end has another secret; give both ends a copy of the same secret file" in agent.log()
    agents.start(server)
    server.wait_ready()
