"""Draw docs/images/dashboard.png: the panels of the dashboard during an overload in which a worker is killed.

Starts a server with the models of tests/monitoring, a Prometheus and `jitney bench`; takes two minutes. Needs
prometheus (`make monitoring-tools`) and Chromium. `--rows "Latency,Workers"` draws other rows, `--output FILE` writes
to another file.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from monitoring.picture.page import Shot, page
from monitoring.prometheus import running

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/monitoring/apps/observed.py"
ROWS = "At a glance,Deployments,Latency"
OUTPUT = ROOT / "docs/images/dashboard.png"
LOADS = [(200, 40), (450, 30), (250, 20)]
"""Requests per second, and for how many seconds; the models can answer 350."""
STREAMS_PER_S = 4
KILL_S = 80
"""When a worker is killed."""
CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]


@contextmanager
def serving(folder: Path) -> Generator[int]:
    """Serve the models, and return the port."""
    log = folder / "jitney.log"
    command = [sys.executable, "-m", "jitney", "serve", str(MODEL), "--port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=folder, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    try:
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        while "ready" not in log.read_text():
            time.sleep(0.1)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(60)


def bench(folder: Path, port: int, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jitney", "bench", f"http://127.0.0.1:{port}", "--warmup", "0", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_a_worker(folder: Path) -> None:
    """Kill a worker, as the kernel does when there is no memory."""
    found = re.search(r"plain/0 \| pid (\d+)", (folder / "jitney.log").read_text())
    assert found, "the model has not written its process"
    os.kill(int(found[1]), signal.SIGKILL)


def load(folder: Path, port: int) -> None:
    items = folder / "items.jsonl"
    texts = ["some words", "other words", "words that are longer"]
    items.write_text("".join(json.dumps(text) + "\n" for text in texts))
    whole = sum(seconds for _, seconds in LOADS)
    more = ["--max-error-share", "1", "--input", str(items)]
    writing = bench(
        folder, port, "--model", "writer", "--stream", "--rate", str(STREAMS_PER_S), "--duration", str(whole), *more
    )
    began = time.monotonic()
    for rate, seconds in LOADS:
        running_load = bench(folder, port, "--model", "plain", "--rate", str(rate), "--duration", str(seconds), *more)
        while running_load.poll() is None:
            if KILL_S - 1 < time.monotonic() - began < KILL_S:
                kill_a_worker(folder)
                time.sleep(2)
            time.sleep(0.1)
    writing.wait(60)


def shoot(folder: Path, document: str, size: tuple[int, int], output: Path) -> None:
    """Take a picture of a page."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("scripts/dashboard_picture.py: chromium is not installed")
    (folder / "page.html").write_text(document)
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [program, *CHROMIUM, f"--user-data-dir={folder / 'chromium'}", f"--window-size={size[0]},{size[1]}"]
    command += [f"--screenshot={output}", (folder / "page.html").as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS, help="titles of rows, separated by commas")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    board = json.loads((ROOT / "deploy/grafana/jitney.json").read_text())
    rules = ROOT / "deploy/prometheus/jitney.rules.yml"
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as port:
        folder = Path(name)
        with running(folder, {"jitney": port}, rules) as prometheus:
            start = time.time() + 3
            time.sleep(3)
            load(folder, port)
            shot = Shot(prometheus, start, time.time() - 1)
            document, width, height = page(board, given.rows.split(","), shot)
        shoot(folder, document, (width, height), given.output)
    print(f"{given.output}: {given.output.stat().st_size // 1000} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
