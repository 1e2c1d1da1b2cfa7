"""Machines that are network namespaces on one bridge: each has its own interfaces, addresses and ports.

Needs root on Linux. The names begin with `jt`, the number of this process and a random part, so that runs do not meet.
"""

import ctypes
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

CLONE_NEWNET = 0x40000000
NAMED = Path("/run/netns")
OURS = re.compile(r"jt(\d+)[a-z]\w*")
LIBC = ctypes.CDLL(None, use_errno=True)
HOME = os.open("/proc/self/ns/net", os.O_RDONLY)
"""The namespace in which this program began: the bridges and their ports are there, wherever a test acts."""


def why_not() -> str:
    """Say why this machine cannot make namespaces; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces: Linux only"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (package iproute2)"
    name = f"jt{os.getpid()}p{secrets.token_hex(1)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "`ip netns add` failed: this container may not make network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


def ip(*arguments: str) -> None:
    with _inside(HOME):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def enter(namespace: str) -> None:
    """Move the calling thread into a namespace: its sockets, threads and children are made there from now on."""
    descriptor = os.open(NAMED / namespace, os.O_RDONLY)
    try:
        _enter(descriptor)
    finally:
        os.close(descriptor)


def _enter(descriptor: int) -> None:
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def _inside(descriptor: int) -> Generator[None]:
    before = os.open(f"/proc/self/task/{_thread()}/ns/net", os.O_RDONLY)
    try:
        _enter(descriptor)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


class Machine:
    """One namespace with one interface, eth0."""

    def __init__(self, namespace: str, bridge: str, address: str) -> None:
        self.namespace = namespace
        self.address = address
        self._port = f"v{namespace}"
        ip("netns", "add", namespace)
        ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", self._port, "master", bridge, "up")
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", namespace, "link", "set", "lo", "up")

    @contextmanager
    def inside(self) -> Generator[None]:
        """Within this block the calling thread, and threads and processes that it starts, are on this machine."""
        descriptor = os.open(NAMED / self.namespace, os.O_RDONLY)
        try:
            with _inside(descriptor):
                yield
        finally:
            os.close(descriptor)

    def start(self, command: Sequence[str], **options: object) -> "subprocess.Popen[bytes]":
        with self.inside():
            return subprocess.Popen(command, start_new_session=True, **options)  # pyright: ignore

    def processes(self) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False)
        return [int(number) for number in done.stdout.split() if int(number) != os.getpid()]

    def kill(self) -> None:
        """Kill all processes at once. The kernel closes their connections, so the peers learn of it at once."""
        while processes := self.processes():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def unplug(self) -> None:
        """Take the link down: packets are lost both ways, and no peer learns of it."""
        ip("link", "set", self._port, "down")

    def plug(self) -> None:
        ip("link", "set", self._port, "up")

    def deafen(self, other: "Machine") -> None:
        """Drop what `other` sends to this machine; what this machine sends still arrives."""
        chain = f"type filter hook input priority 0\nip saddr {other.address} drop"
        rules = f"table ip cut {{\nchain input {{\n{chain}\n}}\n}}\n"
        with self.inside():
            subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True, capture_output=True)

    def hear_again(self) -> None:
        with self.inside():
            subprocess.run(["nft", "delete", "table", "ip", "cut"], check=True, capture_output=True)

    def close(self) -> None:
        self.kill()
        with suppress(OSError):
            ip("link", "del", self._port)
        with suppress(OSError):
            ip("netns", "del", self.namespace)


Machines = Callable[[int], list[Machine]]
"""Makes so many machines."""


class Network:
    """A bridge and the machines on it. Leaving the block kills all their processes and removes everything."""

    def __init__(self, count: int, prefix: str = "10.77.0") -> None:
        self.tag = f"jt{os.getpid()}"
        self._bridge = f"{self.tag}b{secrets.token_hex(1)}"
        self.machines: list[Machine] = []
        self._count, self._prefix = count, prefix

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            ip("link", "add", self._bridge, "type", "bridge")
            ip("link", "set", self._bridge, "up")
            for number in range(self._count):
                name = f"{self.tag}{chr(ord('m') + number % 12)}{secrets.token_hex(1)}"
                self.machines.append(Machine(name, self._bridge, f"{self._prefix}.{number + 1}"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.close()
        with suppress(OSError):
            ip("link", "del", self._bridge)


def remove_leftovers() -> None:
    """Remove the namespaces and bridges of runs that were killed before they could do it."""
    for path in NAMED.glob("jt*"):
        if (found := OURS.fullmatch(path.name)) and not Path(f"/proc/{found.group(1)}").exists():
            done = subprocess.run(["ip", "netns", "pids", path.name], capture_output=True, text=True, check=False)
            for process in done.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            with suppress(OSError):
                ip("netns", "del", path.name)
    for path in Path("/sys/class/net").glob("jt*b*"):
        if (found := OURS.fullmatch(path.name)) and not Path(f"/proc/{found.group(1)}").exists():
            with suppress(OSError):
                ip("link", "del", path.name)


def _thread() -> int:
    return LIBC.gettid() if hasattr(LIBC, "gettid") else os.getpid()
