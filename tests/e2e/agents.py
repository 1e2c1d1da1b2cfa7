"""Agents as users start them: `python -m jitney worker …`, in separate processes of the same machine."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from harness import APPS, COLOUR, PATIENCE_S, Server, until

JOINS = re.compile(r"agents join at (tcp:127\.0\.0\.1:\d+)")


def write_secret(folder: Path, text: str = "s" * 40) -> Path:
    """Write a secret file."""
    path = folder / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return path


def listening(secret: Path, *more: str, address: str = "tcp:127.0.0.1:0", local: int = 0) -> tuple[str, ...]:
    """Return the options of a server that agents join."""
    return ("--local", str(local), "--workers-listen", address, "--workers-secret-file", str(secret), *more)


def address_of(server: Server) -> str:
    """Return where agents join a server."""
    return until(lambda: JOINS.findall(server.log()), "the server says where agents join")[0]


class Agent:
    """One agent and its output."""

    def __init__(self, server: Server, folder: Path, address: str, secret: Path, *more: str) -> None:
        self._log_file = folder / f"agent-{id(self)}.log"
        command = [sys.executable, "-m", "jitney", "worker", "--connect", address, "--secret-file", str(secret), *more]
        environment = {
            **os.environ,
            "PYTHONPATH": str(APPS),
            "JITNEY_TEST_CALLS": str(server.calls_file),
            "JITNEY_TEST_GATE": str(server.gate_file),
            "JITNEY_TEST_TAG": server.tag,
        }
        with self._log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def log(self) -> str:
        return COLOUR.sub("", self._log_file.read_text(errors="replace"))

    def workers(self) -> list[int]:
        """The processes that host replicas."""
        found: list[int] = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in task.read_text().split():
                if b"jitney.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(pid))
        return found

    def terminate(self) -> int:
        """Ask it to end, and wait; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_exit()

    def wait_exit(self) -> int:
        return self.process.wait(PATIENCE_S)


class Agents:
    """Starts agents for servers, and ends those that are left."""

    def __init__(self, folder: Path) -> None:
        self.secret = write_secret(folder)
        self._folder = folder
        self._started: list[Agent] = []

    def start(self, server: Server, *more: str, address: str | None = None, secret: Path | None = None) -> Agent:
        agent = Agent(server, self._folder, address or address_of(server), secret or self.secret, *more)
        self._started.append(agent)
        server.agents.append(agent.process.pid)
        return agent

    def end(self) -> None:
        for agent in self._started:
            if agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait()


@contextmanager
def agents_in(folder: Path) -> Generator[Agents]:
    """Agents that end with the block."""
    agents = Agents(folder)
    try:
        yield agents
    finally:
        agents.end()
