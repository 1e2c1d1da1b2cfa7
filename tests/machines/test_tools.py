"""The tools of the other tests: machines, links, cuts and wires do what they say."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable

import pytest
from namespaces import NAMED, Machine, Machines, Network
from wire import Wire

LISTEN = "import socket, sys, time; s = socket.create_server((sys.argv[1], 7000)); c, _ = s.accept(); time.sleep(600)"


def datagrams(machine: Machine, address: str) -> socket.socket:
    """A socket on a machine that waits for at most half a second."""
    with machine.inside():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 7001))
    made.settimeout(0.5)
    return made


def arrives(sender: socket.socket, receiver: socket.socket) -> bool:
    """Whether a datagram arrives. The first one may wait until the address of the other is known."""
    mark = os.urandom(8)
    for _ in range(3):
        sender.sendto(mark, receiver.getsockname())
        try:
            while True:
                if receiver.recv(100) == mark:
                    return True
        except TimeoutError:
            continue
    return False


def test_a_link_goes_down_and_up_and_a_connection_survives_it(machines: Machines) -> None:
    one, two = machines(2)
    with two.inside(), socket.create_server((two.address, 7000)) as listener:
        with one.inside():
            client = socket.create_connection((two.address, 7000), timeout=30)
        server, _ = listener.accept()
    server.settimeout(0.3)
    two.unplug()
    client.sendall(b"late")
    with pytest.raises(TimeoutError):
        server.recv(4)
    two.plug()
    server.settimeout(30)
    assert server.recv(4) == b"late"
    client.close()
    server.close()


def test_a_machine_is_killed_and_its_peers_learn_of_it(machines: Machines) -> None:
    one, two = machines(2)
    process = two.start([sys.executable, "-c", LISTEN, two.address])
    for _ in range(500):
        with one.inside():
            try:
                client = socket.create_connection((two.address, 7000), timeout=30)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
    else:
        raise AssertionError("the other machine does not listen")
    two.kill()
    assert client.recv(1) == b""
    assert process.wait(30) == -9
    client.close()


@pytest.mark.skipif(shutil.which("nft") is None, reason="needs the program nft (package nftables)")
def test_one_way_is_cut_by_a_rule(machines: Machines) -> None:
    one, two = machines(2)
    with datagrams(one, one.address) as left, datagrams(two, two.address) as right:
        assert arrives(left, right)
        assert arrives(right, left)
        two.deafen(one)
        assert not arrives(left, right)
        assert arrives(right, left)
        two.hear_again()
        assert arrives(left, right)


def test_a_wire_delays(machines: Machines, wires: Callable[[Machine, Machine], Wire]) -> None:
    one, two = machines(2)
    wire = wires(one, two)
    with datagrams(one, wire.near) as left, datagrams(two, wire.far) as right:

        def round_trip_s() -> float:
            begin = time.monotonic()
            assert arrives(left, right)
            assert arrives(right, left)
            return time.monotonic() - begin

        without_s = min(round_trip_s() for _ in range(10))
        wire.delay(100)
        with_s = min(round_trip_s() for _ in range(5))
        assert without_s < 0.1
        assert 0.2 <= with_s < 0.5


def test_a_wire_cuts_one_way_and_loses_a_share(machines: Machines, wires: Callable[[Machine, Machine], Wire]) -> None:
    one, two = machines(2)
    wire = wires(one, two)
    with datagrams(one, wire.near) as left, datagrams(two, wire.far) as right:
        wire.cut("there")
        assert not arrives(left, right)
        assert arrives(right, left)
        wire.join()
        assert arrives(left, right)
        wire.lose(0.5)
        for _ in range(400):
            left.sendto(b"x", (wire.far, 7001))
        received = 0
        right.settimeout(0.3)
        try:
            while right.recv(10):
                received += 1
        except TimeoutError:
            pass
        assert 130 < received < 270


def test_nothing_is_left_behind() -> None:
    with Network(2) as network:
        processes = [machine.start([sys.executable, "-c", LISTEN, machine.address]) for machine in network.machines]
        names = [machine.namespace for machine in network.machines]
        assert all((NAMED / name).exists() for name in names)
    assert [process.wait(30) for process in processes] == [-9, -9]
    assert not any((NAMED / name).exists() for name in names)
    assert not list(NAMED.glob(f"{network.tag}*"))
