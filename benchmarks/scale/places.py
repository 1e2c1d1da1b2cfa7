"""Servers whose workers run on other machines: network namespaces, with an agent in each."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import load
import servers
from servers import HERE, Running

sys.path.append(str(HERE.parent / "tests" / "machines"))

from namespaces import Machine, Network, why_not

__all__ = ["Agent", "Front", "Machine", "Network", "Site", "why_not"]

WORKER_PORT = 7070
READY_WITHIN_S = 90.0


class Front(Running):
    """A server on a machine."""

    def __init__(self, machine: Machine, path: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.machine = machine
        port = servers.free_port()
        with machine.inside():
            super().__init__("jitney", [*arguments, "--port", str(port)], port, path, environment)

    def get(self, path: str) -> tuple[int, str]:
        """Ask a page of the front: its status and its text."""
        with self.machine.inside(), socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            answer = connection.makefile("rb").read().decode()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), body

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = (line.rpartition(" ") for line in self.get("/metrics")[1].splitlines() if not line.startswith("#"))
        return sum(float(value) for key, _, value in lines if key.split("{")[0] == name)

    def wait(self, within_s: float = READY_WITHIN_S) -> None:
        """Until every replica is ready."""
        end, said = time.monotonic() + within_s, ""
        while time.monotonic() < end and self.process.poll() is None:
            try:
                status, said = self.get("/readyz")
            except OSError:
                status = 0
            if status == 200:
                return
            time.sleep(0.05)
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")[-3000:]
        raise RuntimeError(f"the server is not ready: {said}\n{log}")

    def wrk(self, connections: int, seconds: float, content_type: str, body: str) -> dict[str, float]:
        """A closed loop of clients on the machine of the front."""
        with self.machine.inside():
            return load.wrk(self.url, connections, seconds, content_type, body)


class Agent:
    """`jitney worker` on a machine."""

    def __init__(self, machine: Machine, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by stop()
        with machine.inside():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jitney", "worker", *arguments], cwd=HERE / "apps",
                env={**os.environ, **environment}, stdout=self._log, stderr=self._log, start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End it and its workers."""
        servers.end(self.process)
        self._log.close()


class Site:
    """Machines, of which the first has the front. Leaving the block ends all that runs there."""

    def __init__(self, count: int, environment: Mapping[str, str] | None = None) -> None:
        self._stack = ExitStack()
        self._count = count
        self._environment = environment or {}
        self.machines: list[Machine] = []

    def __enter__(self) -> "Site":
        self.machines = self._stack.enter_context(Network(self._count)).machines
        self._secret = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "secret"
        self._secret.write_text("benchmark " * 5)
        self._secret.chmod(0o600)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def front(self, target: str, path: str, *arguments: str, is_remote: bool = True) -> Front:
        """Start the front; its workers run at agents, or on its machine."""
        address = f"tcp:{self.machines[0].address}:{WORKER_PORT}"
        remote = ("--local", "0", "--workers-listen", address, "--workers-secret-file", str(self._secret))
        command = [sys.executable, "-m", "jitney", "serve", target, *(remote if is_remote else ()), *arguments]
        front = Front(self.machines[0], path, command, self._environment)
        self._stack.callback(front.stop)
        return front

    def agent(self, number: int, *arguments: str, environment: Mapping[str, str] | None = None) -> Agent:
        """Start an agent on one of the machines."""
        connect = ["--connect", f"tcp:{self.machines[0].address}:{WORKER_PORT}", "--secret-file", str(self._secret)]
        agent = Agent(
            self.machines[number], [*connect, "--cores", "1", *arguments], {**self._environment, **(environment or {})}
        )
        self._stack.callback(agent.stop)
        return agent
