"""SIGHUP: what is read again, and what it means when a terminal was closed."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import APPS, Serve, Server, until
from test_keys import bearer


def hang_up(server: Server, *words: str) -> None:
    """Send SIGHUP, and wait until the log says so in these words."""
    before = len(server.log())
    server.process.send_signal(signal.SIGHUP)
    until(lambda: all(word in server.log()[before:] for word in ("SIGHUP", *words)), f"the log says {words}")


def test_keys_and_log_level_are_read_again(serve: Serve, tmp_path: Path) -> None:
    keys, options = tmp_path / "keys", tmp_path / "jitney.toml"
    keys.write_text("old-key\n")
    options.write_text("[server]\nlog_level = 'info'\n")
    server = serve("sleepy.py", arguments=("--api-keys-file", str(keys), "--open-metrics"))
    with server.client() as client:
        assert client.post("/sleepy", "ab", bearer("old-key")).status == 200
        keys.write_text("new-key\n")
        options.write_text("[server]\nlog_level = 'debug'\nmax_body_bytes = 5\n")
        hang_up(server, "1 keys in", "log_level debug", "a restart is needed for max_body_bytes")
        # The connection is still the same.
        assert client.post("/sleepy", "ab", bearer("new-key")).status == 200
        assert client.post("/sleepy", "ab", bearer("old-key")).status == 401
        # Refused requests are logged at `debug`.
        until(lambda: "DEBUG" in server.log(), "lines of the new level are there")
        options.write_text("[server]\nlog_level = 'loud'\n")
        hang_up(server, "log_level", "it stays as it was")
        assert client.post("/sleepy", "ab", bearer("new-key")).json() == "ba"


def test_a_signal_while_models_load_does_not_end_the_start(serve: Serve) -> None:
    server = serve("slow_load.py", wait=False, is_gate_shut=True)
    assert server.port
    hang_up(server, "log_level info")
    server.open_gate()
    server.wait_ready()


@pytest.mark.parametrize("with_nohup", [False, True])
def test_a_server_ends_in_order_with_its_terminal_but_not_with_nohup(tmp_path: Path, with_nohup: bool) -> None:
    master, slave = pty.openpty()
    log = tmp_path / "log"
    command = [sys.executable, "-m", "jitney", "serve", str(APPS / "noop.py"), "--port", "0"]
    command = ["nohup", *command] if with_nohup else command
    # The process leads a session, and its first terminal becomes that of the session. These tests may run below nohup.
    starter = (
        "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", starter, *command],
            stdin=slave,
            stdout=file,
            stderr=file,
            env=os.environ | {"PYTHONPATH": str(APPS)},
            start_new_session=True,
        )
    os.close(slave)
    try:
        until(lambda: "ready after" in log.read_text() or process.poll() is not None, f"ready: {log.read_text()}")
        process.send_signal(signal.SIGHUP)
        until(lambda: "SIGHUP: read again" in log.read_text(), "with its terminal it only reads again")
        os.close(master)
        if with_nohup:
            until(lambda: log.read_text().count("SIGHUP: read again") == 2, "it goes on")
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
        assert "every request has been answered" in log.read_text()
    finally:
        process.kill()
        process.wait()
