"""A wire between two namespaces that delays, loses and cuts, each way separately; `netem` is missing in many kernels.

A process reads the packets of two TUN devices and writes each to the other. Run as a program:
`wire.py NAMESPACE ADDRESS NAMESPACE ADDRESS`, with commands on stdin. It answers `ok` when a command is in force.
"""

import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from typing import Self

from namespaces import Machine, enter, ip

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
BURST = 64
"""Packets that are read from one device before the other one is looked at."""
LONGEST = 65536


class Wire:
    """The controls of a wire. It has two further addresses: `near` on the first machine, `far` on the second."""

    def __init__(self, one: Machine, two: Machine, number: int = 0) -> None:
        self.near, self.far = f"10.78.{number}.1", f"10.78.{number}.2"
        command = [sys.executable, __file__, one.namespace, self.near, two.namespace, self.far]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if line != "ok\n":
            raise OSError(f"the wire said {line!r}")

    def _set(self, *words: object) -> None:
        assert self._process.stdin
        print(*words, file=self._process.stdin, flush=True)
        self._wait()

    def delay(self, one_way_ms: float) -> None:
        self._set("delay", one_way_ms)

    def lose(self, share: float) -> None:
        """Lose this share of the packets, 0 to 1, at random."""
        self._set("lose", share)

    def cut(self, *ways: str) -> None:
        """Lose all packets: `there` (from the first machine to the second), `back`, or both."""
        self._set("cut", *(ways or ("there", "back")))

    def join(self) -> None:
        self._set("cut")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class Way:
    """One direction."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self._target = source, target
        self.delay_s = 0.0
        self.lost = 0.0
        self.is_cut = False
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._random = random.Random(source)

    def take(self) -> None:
        for _ in range(BURST):
            try:
                packet = os.read(self.source, LONGEST)
            except BlockingIOError:
                return
            if not self.is_cut and self._random.random() >= self.lost:
                self._waiting.append((time.monotonic() + self.delay_s, packet))

    def give(self) -> float | None:
        """Write what is due; returns the seconds until the next packet is."""
        while self._waiting:
            wait_s = self._waiting[0][0] - time.monotonic()
            if wait_s > 0:
                return wait_s
            packet = self._waiting.popleft()[1]
            try:
                os.write(self._target, packet)
            except OSError:  # the queue of the device is full, or its interface is down: the packet is lost
                continue
        return None


def device(namespace: str, name: str, mine: str, other: str) -> int:
    enter(namespace)
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    ip("-n", namespace, "addr", "add", mine, "peer", other, "dev", name)
    ip("-n", namespace, "link", "set", name, "mtu", "9000", "up", "txqueuelen", "10000")
    return descriptor


def obey(line: str, there: Way, back: Way) -> None:
    match line.split():
        case ["delay", milliseconds]:
            there.delay_s = back.delay_s = float(milliseconds) / 1000
        case ["lose", share]:
            there.lost = back.lost = float(share)
        case ["cut", *ways]:
            there.is_cut, back.is_cut = "there" in ways, "back" in ways
        case _:
            raise ValueError(f"unknown command {line!r}")


def main(one: str, near: str, two: str, far: str) -> None:
    name = f"wire{near.split('.')[2]}"
    first, second = device(one, name, near, far), device(two, name, far, near)
    there, back = Way(first, second), Way(second, first)
    print("ok", flush=True)
    wait_s: float | None = None
    while True:
        # `select` counts in microseconds; `poll` and `epoll` round up to the next millisecond.
        ready, _, _ = select.select([0, first, second], [], [], wait_s)
        if 0 in ready:
            line = sys.stdin.readline()
            if not line:
                return
            obey(line, there, back)
            print("ok", flush=True)
        for way in (there, back):
            if way.source in ready:
                way.take()
        wait_s = min((due for way in (there, back) if (due := way.give()) is not None), default=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
