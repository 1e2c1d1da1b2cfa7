"""The actor of one place: it runs `jitney worker`, and ends with it. Runs on the machines of the cluster."""

import asyncio
import contextlib
import importlib
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

_LINGER_S: Final = 2.0
"""After the end of its agent the actor stays for so long, so that the provider hears why it has ended."""
_THREADS: Final = "OMP_NUM_THREADS"
"""What Ray sets for its workers. jitney would take it for the user's own choice."""


class Place:
    """One place. It is asynchronous, so that a later provider can ask while an earlier one waits."""

    def __init__(self) -> None:
        self._agent: subprocess.Popen[str] | None = None
        self._over = asyncio.Event()
        self._why = ""

    async def start(self, order: dict[str, Any]) -> str:
        """Start the agent, once; returns the machine."""
        if self._agent is None:
            self._run(order)
        return str(importlib.import_module("ray").get_runtime_context().get_node_id())

    def _run(self, order: Mapping[str, Any]) -> None:
        folder = None if order["has_folder"] or not Path(order["folder"]).is_dir() else order["folder"]
        secret = _secret_file(order["secret"])
        # The thread of this loop lives as long as the actor: the kernel ends the agent with it.
        self._agent = subprocess.Popen(
            command(order, secret), cwd=folder, env=environment(order, os.environ), stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        watch = (self._agent, secret, asyncio.get_running_loop())
        threading.Thread(target=self._watch, args=watch, daemon=True).start()

    async def wait(self) -> str:
        """Wait until the agent has ended; returns why."""
        await self._over.wait()
        return self._why

    def _watch(self, agent: "subprocess.Popen[str]", secret: Path, loop: asyncio.AbstractEventLoop) -> None:
        last = _relay(agent.stderr)
        code = agent.wait()
        with contextlib.suppress(OSError):
            secret.unlink()
            secret.parent.rmdir()
        self._why = f"jitney worker ended with exit code {code}{': ' + last if last else ''}"
        loop.call_soon_threadsafe(self._over.set)
        threading.Event().wait(_LINGER_S)
        os._exit(0)


def command(order: Mapping[str, Any], secret: Path) -> list[str]:
    """Return the command of an agent with one place."""
    words = [sys.executable, "-m", "jitney", "worker", "--connect", order["connect"], "--secret-file", str(secret)]
    words += ["--places", "1", "--cores", str(max(1, math.ceil(order["num_cpus"])))]
    if order["num_gpus"]:
        words += ["--devices", "auto"]
    if order["resources"]:
        words += ["--resources", ",".join(f"{name}={amount:g}" for name, amount in order["resources"].items())]
    return words


def environment(order: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an agent: those of the actor, without what only Ray has set."""
    own = {name: text for name, text in given.items() if name != _THREADS or name in order["variables"]}
    return {**own, "JITNEY_WORKER_ENGINE": "ray", "JITNEY_WORKER_NAME": order["name"]}


def _secret_file(secret: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="jitney-ray-")) / "secret"
    path.touch(0o600)
    path.write_text(secret)
    return path


def _relay(lines: IO[str] | None) -> str:
    """Write what the agent writes, to the log of the actor; returns the last line."""
    last = ""
    for line in lines or ():
        sys.stderr.write(line)
        sys.stderr.flush()
        last = line.strip() or last
    return last
