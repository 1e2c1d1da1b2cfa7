"""`jitney serve --inline`: the model in the server's own process, with the terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import LISTENING, PATIENCE_S, Serve, until

MODEL = """
import os
import jitney

@jitney.deployment(replicas=2, batch_timeout_s=1, examples=["warm"])
class Stops:
    def __init__(self):
        self.pid = os.getpid()

    def predict(self, texts: list[str]) -> list[str]:
        if texts == ["stop"]:
            breakpoint()
        if texts == ["raise"]:
            raise ValueError("this is a bad one")
        print("predicting", texts)
        return [f"{text} {self.pid}" for text in texts]
"""


class Terminal:
    """A program on its own terminal, and what it has written there."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._end, other = pty.openpty()
        command = [sys.executable, "-m", "jitney", "serve", *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        self.text = ""

    def expect(self, pattern: str) -> "re.Match[str]":
        """Read until this is there; what was written before it is forgotten."""
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"waited for {pattern!r}; the terminal shows:\n{self.text}"
            if select.select([self._end], [], [], 0.1)[0]:
                self.text += os.read(self._end, 65536).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found

    def write(self, line: str) -> None:
        os.write(self._end, f"{line}\n".encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "stops.py").write_text(MODEL)
    started = Terminal(tmp_path, "stops.py", "--inline", "--port", "0")
    yield started
    started.close()


def ask(port: str, text: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/stops", text.encode(), {"content-type": "text/plain"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_breakpoint_stops_in_the_terminal_and_the_request_is_answered_after_it(terminal: Terminal) -> None:
    port = terminal.expect(LISTENING.pattern).group(1)
    terminal.expect(r"ready after")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, port, "stop")
        terminal.expect(r"\(Pdb\)")
        terminal.write("p texts, type(self).__name__")
        terminal.expect(r"\(\['stop'\], 'Stops'\)")
        terminal.expect(r"\(Pdb\)")
        # The server answers while the model is stopped, for longer than the time-out of a batch in the file.
        until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200, "it is ready")
        time.sleep(1.5)
        terminal.write("self.pid = 'changed'")
        terminal.expect(r"\(Pdb\)")
        terminal.write("c")
        terminal.expect(r"predicting \['stop'\]")
        assert answer.result() == '"stop changed"'
    assert "model_failed" in ask(port, "raise")
    terminal.expect(r"in predict\s+raise ValueError")
    # Ctrl-C ends the server also after a debugger has run.
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(PATIENCE_S) == 0


def test_the_model_runs_in_the_process_of_the_server(serve: Serve) -> None:
    server = serve("closing.py:Closing", arguments=("--inline",))
    assert server.workers() == []
    assert server.post("/closing", "abc").json() == "abc"
    server.terminate()
    assert server.wait_exit() == 0
    assert "closing was closed (main thread: True)" in server.log()


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_traceback(serve: Serve) -> None:
    server = serve("fails_to_load.py", arguments=("--inline",), wait=False)
    assert server.wait_exit() == 1
    assert "Traceback" in server.log()


def test_what_inline_cannot_do_is_refused(serve: Serve) -> None:
    server = serve("closing.py", arguments=("--inline",), wait=False)
    assert server.wait_exit() == 1
    assert "--inline serves one deployment" in server.log() and "closing.py:closing" in server.log()
    server = serve("closing.py:Closing", arguments=("--inline", "--set", "closing.replicas=2"), wait=False)
    assert server.wait_exit() == 1
    assert "--inline runs one replica, not 2" in server.log()
    server = serve("closing.py:Closing", arguments=("--inline", "--reload"), wait=False)
    assert server.wait_exit() == 2
    assert "--inline and --reload do not work together" in server.log()


WITHOUT_TERMINAL = """
import pdb
import jitney

@jitney.deployment
def stops(texts: list[str]) -> list[str]:
    breakpoint() if texts == ["breakpoint"] else pdb.set_trace()
    return texts
"""


def test_a_breakpoint_in_a_worker_says_where_one_works(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(WITHOUT_TERMINAL)
    server = serve(str(tmp_path / "stops.py"), arguments=("--show-errors",))
    for text, raised in (("breakpoint", "RuntimeError: breakpoint(): "), ("set_trace", "BdbQuit: ")):
        failed = server.post("/stops", text)
        assert (failed.status, failed.reason) == (500, "model_failed")
        assert (
            f"{raised}a worker has no terminal for a debugger: use `jitney check`, or `jitney serve --inline`"
            in (failed.json()["detail"])
        )
