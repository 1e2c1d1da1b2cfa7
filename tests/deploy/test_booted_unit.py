"""The unit in a container that systemd has booted, as its process 1: started, reloaded, hung, killed, stopped."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import FOLDER, buildah, free_port, image
from harness import Client, until
from tools import DEPLOY, ROOT, need, run

UNIT = "jitney@embedder"
OPTIONS = "[server]\nlog_level = 'info'\n"


class Machine:
    """A booted container."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        command = ["systemd-nspawn", "--directory", folder, "--boot", "--register=no", "--keep-unit", "--quiet"]
        self.console = (FOLDER / "console").open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.console, stderr=self.console)
        self._first = 0

    def first(self) -> int:
        """Return the number of its process 1, on this machine."""
        if not self._first:
            self._first = until(self._find_first, "its process 1 is there")
        return self._first

    def _find_first(self) -> int:
        """Find it: nspawn has other children before."""
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            try:
                status = Path(f"/proc/{child}/status").read_text()
            except OSError:
                continue
            if status.startswith("Name:\tsystemd\n") and f"NSpid:\t{child}\t1\n" in status:
                return int(child)
        return 0

    def run(self, *command: str, check: bool = True, timeout_s: float = 90) -> str:
        """Run a program in it."""
        inside = ("nsenter", "--target", str(self.first()), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/")
        return run(*inside, *command, check=check, timeout_s=timeout_s).stdout.strip()

    def show(self, name: str) -> str:
        return self.run("systemctl", "show", "--property", name, "--value", UNIT, check=False)

    def front(self) -> int:
        """Return the number of the front in the container; 0 if it does not run."""
        return int(self.show("MainPID") or 0)

    def log(self) -> str:
        return self.run("journalctl", "--no-pager", "--unit", UNIT, check=False)

    def is_active(self) -> bool:
        return self.show("ActiveState") == "active"

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.console.close()


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    need("systemd-nspawn", "nsenter")
    folder, port = FOLDER / "booted", free_port()
    shutil.rmtree(folder, ignore_errors=True)
    container = buildah("from", "--pull-never", image())
    run("cp", "-a", buildah("mount", container), folder, timeout_s=300)
    buildah("umount", container)
    buildah("rm", container)
    install(folder, port)
    machine = Machine(folder, port)
    try:
        until(machine.is_active, f"the unit is active: {(FOLDER / 'console').read_text(errors='replace')[-3000:]}")
        yield machine
    finally:
        machine.close()


def install(folder: Path, port: int) -> None:
    """Do what docs/operations/deployment.md says. jitney is in the image already."""
    units = folder / "etc/systemd/system"
    shutil.copy(DEPLOY / "jitney@.service", units)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / f"{UNIT}.service").symlink_to("../jitney@.service")
    # Sooner than in production, so that the test need not wait for a minute.
    (units / "jitney@.service.d").mkdir()
    (units / "jitney@.service.d/test.conf").write_text("[Service]\nWatchdogSec=4\n")
    (folder / "opt/jitney").mkdir(parents=True)
    (folder / "opt/jitney/bin").symlink_to("/usr/local/bin")
    (folder / "etc/jitney").mkdir()
    (folder / "etc/jitney/embedder.env").write_text(f"TARGETS=embedder.py\nJITNEY_PORT={port}\nJITNEY_API_KEYS=a-key\n")
    models = folder / "srv/jitney/embedder"
    models.mkdir(parents=True)
    shutil.copy(ROOT / "examples/embedder.py", models)
    (models / "jitney.toml").write_text(OPTIONS)


def ask(machine: Machine) -> int:
    with Client(machine.port) as client:
        return client.post("/embedder", "How big is London?", {"x-api-key": "a-key"}).status


def test_it_is_active_when_it_is_ready_and_has_no_rights(machine: Machine) -> None:
    assert ask(machine) == 200
    assert machine.show("StatusText") == "ready: embedder"
    status = machine.run("cat", f"/proc/{machine.front()}/status")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status, line
    # The system calls that the model needs are allowed: nothing was refused on the way.
    assert "Operation not permitted" not in machine.log()


def test_reload_reads_options_again(machine: Machine) -> None:
    options = machine.folder / "srv/jitney/embedder/jitney.toml"
    options.write_text(OPTIONS.replace("info", "debug"))
    front = machine.front()
    machine.run("systemctl", "reload", UNIT)
    until(lambda: "SIGHUP: read again: log_level debug" in machine.log(), "it has read them")
    assert machine.front() == front and ask(machine) == 200


def test_a_front_that_is_killed_or_hangs_is_started_again(machine: Machine) -> None:
    for how in ("KILL", "STOP"):
        front, restarts = machine.front(), int(machine.show("NRestarts"))
        machine.run("sh", "-c", f"kill -{how} {front}")
        until(lambda: int(machine.show("NRestarts")) == restarts + 1, f"it is started again after SIG{how}")  # noqa: B023
        until(machine.is_active, "it is ready again")
        assert machine.front() not in (0, front) and ask(machine) == 200
    assert "watchdog" in machine.log().lower()


def test_stop_is_in_order(machine: Machine) -> None:
    machine.run("systemctl", "stop", UNIT)
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
    assert "every request has been answered" in machine.log()
    assert machine.run("systemctl", "start", UNIT) == "" and ask(machine) == 200


def test_a_wrong_option_is_not_tried_again(machine: Machine) -> None:
    environment = machine.folder / "etc/jitney/embedder.env"
    before = environment.read_text()
    environment.write_text(f"{before}JITNEY_MAX_CONNECTIONS=many\n")
    machine.run("systemctl", "restart", UNIT, check=False)
    until(lambda: machine.show("ActiveState") == "failed", "it has failed")
    assert (machine.show("ExecMainStatus"), machine.show("NRestarts")) == ("2", "0")
    assert "max_connections" in machine.log().lower()
    environment.write_text(before)
