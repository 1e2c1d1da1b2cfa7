"""Break a server in ten ways under a light load, and print where and when each fault was seen.

Each fault has a fresh server with two replicas, a Prometheus that scrapes it every 5 s with the rules of
deploy/prometheus, and the live page in a browser. Before the fault the server runs for a minute, in which nothing may
be said and no alert may fire. Pictures of the page, and what was seen, are written to target/breakages. `python
scripts/breakages hung clock` runs only these, and `slow,` four slownesses. Each takes two minutes. Needs prometheus,
Chromium (`make monitoring-tools`) and, for a full disk, root.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/e2e")]

from browser import Browser, Page, browsing  # noqa: E402
from harness import Server  # noqa: E402
from monitoring.prometheus import running  # noqa: E402

from breakages.faults import Fault, Scene, chosen  # noqa: E402 - found by the line above
from breakages.observing import Observer, Sight, Sights  # noqa: E402

RULES = ROOT / "deploy/prometheus/jitney.rules.yml"
OUTPUT = ROOT / "target/breakages"
CLIENTS = 4
PAUSE_S = 0.1
PATIENCE_S = 70.0
UNSEEN_S = 30.0
"""After so long the page is pictured of which nothing particular is expected."""
LIMITS = {"live": 30, "log": 30, "alerts": 60}
"""Seconds within which a fault must be seen."""


@contextmanager
def light_load(scene: Scene) -> Generator[None]:
    """Let a few clients send texts, pause, and go on whatever they are answered."""
    over = threading.Event()

    def run(number: int) -> None:
        while not over.is_set():
            with suppress(Exception), scene.server.client(timeout_s=10) as client:
                while not over.wait(PAUSE_S):
                    client.post("/shout", f"text {number}")
            over.wait(PAUSE_S)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(15)


@contextmanager
def small_disk(folder: Path) -> Generator[Path]:
    """Mount a disk of 4 MB."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)


def stage(fault: Fault, folder: Path, stack: ExitStack) -> Scene:
    """Start a server that can break in this way."""
    target = folder / "served.py"
    shutil.copy(Path(__file__).parent / "served.py", target)
    environment = {"BREAKAGES_FOLDER": str(folder)} | (fault.environment(folder) if fault.environment else {})

    def start(*arguments: str) -> Server:
        server = Server(folder, [str(target)], (*fault.arguments, *arguments), environment)
        stack.callback(end, server)
        return server

    scene = Scene(start().wait_ready(), folder)
    if fault.needs_disk:
        scene.disk = stack.enter_context(small_disk(folder))
    return scene


def end(server: Server) -> None:
    """End a server, however broken it is."""
    with suppress(AssertionError):
        server.finish()


def file_name(fault: Fault) -> str:
    return re.sub(r"\W+", "-", fault.name)


def first(pattern: str, sights: list[Sight]) -> Sight | None:
    return next((sight for sight in sights if re.search(pattern, sight.text)), None)


def found(fault: Fault, sights: Sights) -> dict[str, Sight | None]:
    """Return what was seen of a fault, by where it must be."""
    patterns = {"live": fault.live, "log": fault.log, "alerts": fault.alerts}
    return {place: first(pattern, getattr(sights, place)) for place, pattern in patterns.items() if pattern}


def watch(fault: Fault, observer: Observer, page: Page) -> None:
    """Wait until the fault was seen everywhere, or for long enough; take a picture when the page shows it."""
    sights, is_pictured = observer.sights, False
    while time.monotonic() - sights.since < PATIENCE_S:
        seen = found(fault, sights)
        if not is_pictured and (seen.get("live") or (not fault.live and seen.get("log"))):
            time.sleep(2.5)
            page.screenshot(OUTPUT / f"{file_name(fault)}.png")
            is_pictured = True
        if all(seen.values()) and (seen or time.monotonic() - sights.since > UNSEEN_S):
            break
        time.sleep(0.2)
    time.sleep(5)
    page.screenshot(OUTPUT / f"{file_name(fault)}-later.png")


def run(fault: Fault, browser: Browser, calm_s: float) -> dict[str, Any]:
    """Break one server; return what was seen before and after."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        scene = stage(fault, folder, stack)
        prometheus = stack.enter_context(running(folder, {"jitney": scene.server.port}, RULES, "5s"))
        stack.enter_context(light_load(scene))
        time.sleep(fault.settle_s)
        page = browser.page(1200)
        page.open(f"http://127.0.0.1:{scene.server.port}/live")
        page.wait("#title", "shout")
        observer = Observer(scene.server, prometheus)
        stack.callback(observer.close)
        observer.begin()
        time.sleep(calm_s)
        stack.callback(lambda: [undo() for undo in reversed(scene.undo)])
        scene.start = lambda: restarted(scene, fault, stack, observer)
        calm = observer.begin()
        fault.make(scene)
        watch(fault, observer, page)
        after = observer.sights
        return {
            "fault": fault.name,
            "calm": asdict(calm),
            "after": asdict(after),
            "seen": {place: asdict(sight) if sight else None for place, sight in found(fault, after).items()},
        }


def restarted(scene: Scene, fault: Fault, stack: ExitStack, observer: Observer) -> Server:
    """Start the server again at the same address."""
    arguments = (*fault.arguments, "--listen", f"tcp:127.0.0.1:{scene.server.port}")
    server = Server(scene.folder, [str(scene.folder / "served.py")], arguments, {"BREAKAGES_FOLDER": str(scene.folder)})
    stack.callback(end, server)
    observer.follow(server)
    return server


def row(result: dict[str, Any]) -> str:
    """Return a row of the table, and whether all was seen in time."""
    cells = [result["fault"]]
    for place, limit in LIMITS.items():
        if place not in result["seen"]:
            cells.append("not needed")
            continue
        sight = result["seen"][place]
        late = "" if sight and sight["at_s"] <= limit else " **LATE**"
        cells.append(f"{sight['at_s']:.0f} s: {sight['text']}{late}" if sight else "**not seen**")
    calm = [sight["text"] for place in LIMITS for sight in result["calm"][place]]
    cells.append("; ".join(calm) if calm else "nothing")
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="breakages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("faults", nargs="*", help="words of the names of the faults; default: all")
    parser.add_argument("--calm", type=float, default=60.0, help="seconds without a fault before it (default: 60)")
    arguments = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    with browsing() as browser:
        for fault in chosen(arguments.faults):
            try:
                result = run(fault, browser, arguments.calm)
            except (AssertionError, OSError, subprocess.CalledProcessError) as error:
                rows.append(f"| {fault.name} | **not run**: {error} |")
                print(rows[-1], flush=True)
                continue
            (OUTPUT / f"{file_name(fault)}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))
            rows.append(row(result))
            print(rows[-1], flush=True)
    table = ["| fault | /live | log | alert | said before |", "| --- | --- | --- | --- | --- |", *rows]
    (OUTPUT / "table.md").write_text("\n".join(table) + "\n")
    return 1 if any("**" in one for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
