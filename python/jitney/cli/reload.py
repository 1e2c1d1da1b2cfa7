"""`--reload`: runs `jitney serve` as a child and tells it when Python files change; it then takes new workers.

It is started again when `jitney.toml` changes, when it ended badly and anything changes, and when it asks for that
because its deployments are not what they were. Knows nothing of serving.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

POLL_S = 0.5
PARENT_VARIABLE = "JITNEY_RELOAD_PARENT"
SKIPPED = {"__pycache__", "node_modules", "site-packages", "target"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGED = signal.SIGUSR1
"""Tells the child that Python files have changed. It ends of it while it does not listen yet, and has read nothing."""
AGAIN = (75, 128 + CHANGED)
"""Exit codes of a child that is to be started again: the same number as in Rust, and that of an early `CHANGED`."""

SETTLES_S = 10.0
"""A child that asks to be started again so soon, though nothing has changed, would ask again."""

Seen = dict[str, tuple[int, int]]


class Reloader:
    """One child at a time; signals go on to it, and its exit code comes back."""

    def __init__(self, command: Sequence[str], folders: Sequence[Path], extra: Sequence[Path] = ()) -> None:
        self.command = list(command)
        self.folders = list(folders)
        self.extra = list(extra)
        self.child: subprocess.Popen[bytes] | None = None
        self.stop_signal: int | None = None
        self.was_told = False
        self.has_changed = False
        self.started = 0.0
        self.seen: Seen = {}

    def run(self) -> int:
        """Serve until told to stop; returns the exit code of the last child."""
        before = {number: signal.signal(number, self._forward) for number in SIGNALS}
        try:
            code, unprovoked = 0, 0
            while self.stop_signal is None:
                code = self._serve()
                if self.stop_signal is not None or code == 0:
                    break
                was_quick = time.monotonic() - self.started < SETTLES_S
                unprovoked = unprovoked + 1 if code in AGAIN and was_quick and not self.has_changed else 0
                if unprovoked > 1:
                    print(
                        "jitney: its deployments differ from process to process; waiting for a change", file=sys.stderr
                    )
                    self._wait_for_change()
                if code is not None and code not in AGAIN:
                    print(f"jitney: the server ended with exit code {code}; waiting for a change", file=sys.stderr)
                    self._wait_for_change()
            return code or 0
        finally:
            if self.child is not None and self.child.poll() is None:
                self.child.kill()
                self.child.wait()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _serve(self) -> int | None:
        """Run one child; returns its exit code, or None when it was ended because the configuration changed."""
        self.seen = self.look()
        # A group of its own: Ctrl-C then reaches the child once, from here, and not a second time from the terminal.
        environment = os.environ | {PARENT_VARIABLE: str(os.getpid())}
        self.was_told = self.has_changed = False
        self.started = time.monotonic()
        self.child = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
        while True:
            if self.stop_signal is not None and not self.was_told:  # it came while the child was being started
                self._tell(self.stop_signal)
            try:
                return _exit_code(self.child.wait(POLL_S))
            except subprocess.TimeoutExpired:
                changed = self._changed() if self.stop_signal is None else set[str]()
                self.has_changed |= bool(changed)
                if changed & {str(path) for path in self.extra}:
                    break
                if changed:
                    self.child.send_signal(CHANGED)
        print("jitney: the configuration changed, restarting", file=sys.stderr)
        self._tell(signal.SIGTERM)
        code = _exit_code(self.child.wait())
        return None if self.stop_signal is None else code

    def _wait_for_change(self) -> None:
        while self.stop_signal is None and not self._changed():
            time.sleep(POLL_S)

    def _changed(self) -> set[str]:
        """Name the files that are new, gone or different since the last look."""
        before, self.seen = self.seen, self.look()
        return {path for path, _ in before.items() ^ self.seen.items()}

    def _forward(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.stop_signal = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        self._tell(self.stop_signal)

    def _tell(self, number: int) -> None:
        if self.child is not None and self.child.poll() is None:
            self.was_told = True
            self.child.send_signal(number)

    def look(self) -> Seen:
        """Note time and size of every watched file."""
        seen: Seen = {}
        for path in (*self.extra, *(file for folder in self.folders for file in _python_files(folder))):
            try:
                state = path.stat()
            except OSError:
                continue
            seen[str(path)] = (state.st_mtime_ns, state.st_size)
        return seen


def _python_files(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        # A virtual environment or a build folder is not what its user edits, and is slow to walk.
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
        yield from (Path(where, name) for name in files if name.endswith(".py"))


def _exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode
