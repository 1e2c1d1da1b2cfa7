"""Faults that an operator must see: what the log and the live page say, and that clients notice as little as possible.

`make breakages` has the slow ones, with a real Prometheus and a browser; docs/operations/monitoring.md has its table.
"""

import re
import resource
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Serve, Server, until
from test_live import deployment, watching

HOUR_S = 3600


def line(server: Server, says: str) -> str:
    """Return the first line of the log that says this, once it is there."""
    return until(lambda: next((one for one in server.log().splitlines() if says in one), ""), f"the log says {says!r}")


def again_and_again(call: Callable[[], object]) -> Callable[[], None]:
    """Call this until what is returned is called."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.02):
            call()

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> None:
        over.set()
        thread.join()

    return end


def test_requests_that_fail_are_one_line_of_the_log_with_the_remedy_that_the_page_has(serve: Serve) -> None:
    server = serve("watched.py")
    end = again_and_again(lambda: server.post("/words", "fail"))
    try:
        said = line(server, "words is not well: ")
        with watching(server) as watcher:
            judgement = until(lambda: deployment(watcher.snapshot(), "words")["judgement"], "a snapshot")
    finally:
        end()
    remedy = "failed: model_failed; predict raises an exception: the log has its traceback"
    assert re.search(rf"WARN .*words is not well: failing: \d+ of \d+ requests in [\d.]+ s {remedy}", said), said
    assert (judgement["word"], remedy in judgement["why"]) == ("failing", True)
    assert "cannot be counted" not in judgement["why"], "what an exception says is only in the log"
    assert server.log().count("is not well") == 1


@pytest.mark.skipif(
    shutil.which("cc") is None, reason="cc is not installed: the library that moves the clock is not built"
)
def test_a_clock_that_jumps_is_said_and_changes_no_duration(serve: Serve, tmp_path: Path) -> None:
    library, offset = tmp_path / "jumping_clock.so", tmp_path / "offset"
    source = Path(__file__).with_name("jumping_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    offset.write_bytes(struct.pack("q", 0))
    server = serve("watched.py", environment={"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(offset)})
    assert server.post("/words", "abc").json() == 3
    for seconds in (HOUR_S, -HOUR_S):
        with offset.open("r+b", buffering=0) as file:  # never shorter: it is mapped
            file.write(struct.pack("q", seconds))
        jumped = seconds if seconds > 0 else 2 * seconds
        said = line(server, f"the clock of this machine jumped by {jumped:+d} s")
        assert " WARN " in said, said
        answer = server.post("/words", "x" * 2000)
        assert answer.json() == 2000
        durations = [float(one) for one in re.findall(r"dur=([\d.]+)", answer.headers["server-timing"])]
        assert durations and min(durations) >= 0 and max(durations) < HOUR_S * 1000, durations
    with watching(server) as watcher:
        snapshot = watcher.snapshot()
    assert snapshot["server"]["up_s"] < HOUR_S
    assert server.log().count("jumped") == 2 and "worker lost" not in server.log()


def test_a_log_that_cannot_be_written_stops_nothing_and_says_later_what_is_missing(serve: Serve) -> None:
    """The log is a file that may not grow, which is to the server as a full disk."""
    server = serve("watched.py")
    before = server.log()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (len(before), resource.RLIM_INFINITY))
    for number in range(3):
        assert server.post("/words", "fail", {"x-request-id": f"unseen-{number}"}).status == 500
    assert server.post("/words", "abc").json() == 3
    assert server.log() == before
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    server.process.send_signal(signal.SIGHUP)
    said = line(server, "lines of this log are missing")
    assert re.search(r"Z  WARN \d+ lines of this log are missing: they could not be written: File too large", said), (
        said
    )
    line(server, "SIGHUP: ")
    assert "unseen-1" not in server.log()
