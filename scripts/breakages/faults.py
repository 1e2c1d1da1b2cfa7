"""The ten faults, as an operator meets them: how each is made, and by which words it is recognized."""

import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import Server

ROOT = Path(__file__).resolve().parents[2]
JUMP_S = 3600
MANY = 150
"""Requests per second that share batches."""
SHIM = ROOT / "tests/e2e/jumping_clock.c"


@dataclass
class Scene:
    """A server that is about to break."""

    server: Server
    folder: Path
    """That of the model, in which a file switches a fault on."""
    disk: Path | None = None
    """A small disk that only this server uses."""
    start: Callable[[], Server] | None = None
    """Starts another server at the same address."""
    undo: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def switch(self, name: str, text: str = "") -> None:
        """Write a file that the model looks for."""
        (self.folder / name).write_text(text)

    def send(self, text: str, every_s: float | None = None) -> None:
        """Send a text in the background, once or again and again."""
        over = threading.Event()
        self.undo.append(over.set)

        def run() -> None:
            while not over.is_set():
                with suppress(Exception):
                    self.server.post("/shout", text)
                if every_s is None or over.wait(every_s):
                    return

        threading.Thread(target=run, daemon=True).start()


@dataclass(frozen=True)
class Fault:
    """One fault."""

    name: str
    make: Callable[[Scene], None]
    live: str
    """A pattern of what the page must say; empty if only the log must say it."""
    log: str
    alerts: str
    """A pattern of the alerts of which one must fire; empty if only the log must say it."""
    arguments: tuple[str, ...] = ()
    environment: Callable[[Path], dict[str, str]] | None = None
    needs_disk: bool = False
    settle_s: float = 15.0
    """How long the server runs under load before it is watched."""


def kill_one(scene: Scene) -> None:
    os.kill(scene.server.workers()[0], signal.SIGKILL)


def hang(scene: Scene) -> None:
    scene.send("hang")


def leak(scene: Scene) -> None:
    scene.switch("leak")


def poison(scene: Scene) -> None:
    scene.send("poison", every_s=1.0)


def lose_the_weights(scene: Scene) -> None:
    scene.switch("no-weights")
    for worker in scene.server.workers():
        os.kill(worker, signal.SIGKILL)


def flood(scene: Scene) -> None:
    load(scene, 900)


def load(scene: Scene, rate: int) -> None:
    """Send so many texts in a second, until all is over."""
    items = scene.folder / "items.jsonl"
    items.write_text('"many"\n')
    command = [sys.executable, "-m", "jitney", "bench", f"http://127.0.0.1:{scene.server.port}/shout", "--warmup", "0"]
    command += ["--rate", str(rate), "--duration", "120", "--input", str(items), "--max-error-share", "1"]
    process = subprocess.Popen(command, cwd=scene.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    scene.undo.append(lambda: end(process))


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def slow_down(scene: Scene) -> None:
    scene.switch("slower", "8")


def send_long_texts(scene: Scene) -> None:
    load(scene, MANY)
    scene.send("long " * 800, every_s=0.5)


def slow_one_down(scene: Scene) -> None:
    load(scene, MANY)
    scene.switch("slower-1", "10")


def send_large_bodies(scene: Scene) -> None:
    load(scene, MANY)
    for _ in range(3):
        scene.send("x" * (1 << 20), every_s=0.05)


def save_a_broken_file(scene: Scene) -> None:
    target = scene.folder / "served.py"
    target.write_text("import no_such_module\n" + target.read_text())


def save_a_wrong_version(scene: Scene) -> None:
    """Fail on all inputs but the example, with which the model is warmed up."""
    target = scene.folder / "served.py"
    text = target.read_text()
    target.write_text(text.replace("[text.upper() for text", '[text.upper() if text == "a" else 1 / 0 for text'))


def deploy_a_broken_file(scene: Scene) -> None:
    assert scene.start
    save_a_broken_file(scene)
    scene.server.terminate()
    scene.server.wait_exit()
    scene.start()


def fill_the_disk(scene: Scene) -> None:
    assert scene.disk
    with suppress(OSError), (scene.disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
    scene.switch("write", str(scene.disk / "result"))


def jump(scene: Scene) -> None:
    with (scene.folder / "clock").open("r+b", buffering=0) as clock:  # never shorter: it is mapped
        clock.write(struct.pack("q", JUMP_S))


def jumping(folder: Path) -> dict[str, str]:
    """Build the library that moves the clock, and return what loads it."""
    made = folder / "jumping_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, SHIM, "-ldl"], check=True)
    (folder / "clock").write_bytes(struct.pack("q", 0))
    return {"LD_PRELOAD": str(made), "JUMPING_CLOCK": str(folder / "clock")}


CRASHES = "JitneyWorkersCrashLoop|JitneyNoReplica|JitneyRequestsFail"
FAULTS = [
    Fault("worker killed", kill_one, "lost in the last 5 minutes.*signal: 9", "worker lost .died.", "JitneyWorkerLost"),
    Fault("worker hung", hang, "it hangs", "it hangs", "JitneyStuck"),
    Fault(
        "memory leak", leak, "memory of replica", "memory of replica", "JitneyWorkerMemory|JitneyMemory", settle_s=80.0
    ),
    Fault("poisonous input", poison, "an input kills", "an input kills", "JitneyInputQuarantined"),
    Fault("model down", lose_the_weights, "loading failed", "weights.bin", CRASHES),
    Fault("queue full", flood, "refused: queue_full", "refused: queue_full", "JitneyRefuses|JitneyQueueSaturated"),
    Fault("slow model", slow_down, "times as long", "times as long", "JitneyModelSlow"),
    Fault("bad deploy, import error", save_a_broken_file, "importing failed", "no_such_module", CRASHES, ("--reload",)),
    Fault(
        "bad deploy, errors in predict",
        save_a_wrong_version,
        "failed: model_failed",
        "failed: model_failed",
        "JitneyRequestsFail",
        ("--reload",),
    ),
    Fault(
        "bad deploy, import error at a restart", deploy_a_broken_file, "not connected", "no_such_module", "JitneyDown"
    ),
    Fault("disk full", fill_the_disk, "", "No space left on device", "", needs_disk=True),
    Fault("clock jump", jump, "", "clock of this machine jumped", "", environment=jumping),
]


SLOWNESSES = [
    Fault("slow, a long text in the batch", send_long_texts, "", "", ""),
    Fault("slow, one worker", slow_one_down, "times as long as the others", "", ""),
    Fault("slow, bodies of 1 MB", send_large_bodies, "", "", ""),
    Fault("slow, a full queue", flood, "refused: queue_full", "", ""),
]
"""What a newcomer must find out from the page alone."""


def chosen(words: list[str]) -> list[Fault]:
    """Return the faults whose name has one of these words; all ten without a word."""
    return [
        fault
        for fault in (FAULTS + SLOWNESSES if words else FAULTS)
        if not words or any(re.search(word, fault.name) for word in words)
    ]
