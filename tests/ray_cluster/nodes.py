"""A Ray cluster of three machines, which are network namespaces: the head, and two with resources."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from namespaces import Machine

RAY = Path(sys.executable).with_name("ray")
QUIET: Mapping[str, str] = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
_PORT = 6379
_SMALL = "--object-store-memory=80000000"


class Nodes:
    """The machines of the cluster, by name: `head`, `m1`, `m2`. m1 and m2 pretend to have two GPUs each."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines: dict[str, Machine] = dict(zip(("head", "m1", "m2"), machines, strict=True))
        self.address = f"{machines[0].address}:{_PORT}"
        # Ray makes sockets there: a long path does not fit.
        self._folder = tempfile.TemporaryDirectory(prefix="jtr-", dir="/tmp", ignore_cleanup_errors=True)

    def start(self) -> None:
        head = ("--head", f"--port={_PORT}", "--num-cpus=0", "--include-dashboard=false")
        self._run("head", *head, f"--temp-dir={self._folder.name}")
        for name in ("m1", "m2"):
            self.start_node(name)

    def start_node(self, name: str) -> None:
        own = (
            "--num-cpus=4",
            "--num-gpus=2",
            f'--resources={{"{name}": 4}}',
            f'--labels={{"zone": "{name}"}}'.replace("'", '"'),
        )
        self._run(name, f"--address={self.address}", *own)

    def kill(self, name: str) -> None:
        """Kill everything on a machine."""
        self.machines[name].kill()

    def close(self) -> None:
        for name in ("m2", "m1", "head"):
            self.kill(name)
        self._folder.cleanup()

    def _run(self, name: str, *arguments: str) -> None:
        machine = self.machines[name]
        command = [
            str(RAY),
            "start",
            f"--node-ip-address={machine.address}",
            _SMALL,
            "--disable-usage-stats",
            *arguments,
        ]
        # Into a file: what `ray start` leaves behind would keep a pipe open.
        with tempfile.TemporaryFile("w+") as output, machine.inside():
            environment = {**os.environ, **QUIET, "JITNEY_TEST_NODE": name}
            code = subprocess.call(command, env=environment, stdout=output, stderr=output, timeout=100)
            output.seek(0)
            assert code == 0, f"{' '.join(command)}\n{output.read()}"
