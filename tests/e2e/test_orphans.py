"""A front that inherits processes, as process 1 of a container does, reaps them, and no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness import Serve, until

# The kernel gives orphans to the nearest subreaper, as it gives them to process 1.
SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
PREFIX = (sys.executable, "-c", SUBREAPER)


def state(pid: int) -> tuple[str, int] | None:
    """Return the state of a process and its parent; `None` if it was reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def test_an_orphan_is_reaped_when_it_ends_and_a_worker_keeps_its_status(serve: Serve) -> None:
    server = serve("orphaning.py", prefix=PREFIX)
    lasting, ended = (server.post("/orphaning", seconds).json() for seconds in (1000, 0))
    until(lambda: state(ended) is None, "the one that has ended is reaped")
    assert state(lasting) == ("S", server.process.pid), "the front is its parent"
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    os.kill(lasting, signal.SIGKILL)
    until(lambda: state(lasting) is None, "the killed one is reaped")
    until(lambda: "signal: 9 (SIGKILL)" in server.log(), f"the log says how the worker ended: {server.log()}")
    server.wait_ready()
    assert server.metric("jitney_workers_lost_total", cause="died") == 1
    until(lambda: state(worker) is None, "the worker is reaped")


PROGRAM = """
import ctypes, os, signal, subprocess, threading, time
import jitney

@jitney.deployment
def echo(texts: list[str]) -> list[str]:
    return texts

def start_some():
    for code in range(1, 11):
        child = subprocess.Popen(["sh", "-c", f"exit {code}"])
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        time.sleep(0.05)
        assert child.wait() == code, child.returncode
    print("all of them", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

if __name__ == "__main__":
    from pathlib import Path
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    threading.Thread(target=start_some, daemon=True).start()
    jitney.serve(echo, port=0)
"""


def test_a_program_that_serves_keeps_the_status_of_its_children(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all of them\n"), ran.stderr
