"""What systemd is sent, on a socket as systemd makes it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Serve, until


class Manager:
    """The socket of a service manager, and the datagrams that came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._messages: list[str] = []

    def messages(self) -> list[str]:
        """Return all that came so far, each field once for each datagram."""
        while True:
            try:
                self._messages += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self._messages

    def environment(self, watchdog_us: int = 0) -> dict[str, str]:
        watchdog = {"WATCHDOG_USEC": str(watchdog_us)} if watchdog_us else {}
        return {"NOTIFY_SOCKET": str(self.path), **watchdog}

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def test_ready_is_sent_when_readyz_says_it_and_stopping_at_the_end(serve: Serve, manager: Manager) -> None:
    server = serve("slow_load.py", environment=manager.environment(), wait=False, is_gate_shut=True)
    until(lambda: any(line.startswith("STATUS=not ready: ") for line in manager.messages()), "it says why not")
    assert not server.is_ready()
    assert "READY=1" not in manager.messages()
    server.open_gate()
    server.wait_ready()
    until(lambda: "READY=1" in manager.messages(), "it is ready")
    assert "STATUS=ready: slow_load" in manager.messages()
    assert "STOPPING=1" not in manager.messages()
    server.terminate()
    assert server.wait_exit() == 0
    messages = manager.messages()
    assert messages.count("READY=1") == 1
    assert messages[-2:] == ["STATUS=shutting down: the server is shutting down", "STOPPING=1"]
    assert "WATCHDOG=1" not in messages, "it was not asked for"


def test_signs_of_life_come_while_the_server_runs_and_no_longer_when_it_stands(serve: Serve, manager: Manager) -> None:
    # Compositions, which have no engine, too.
    server = serve("composed.py", environment=manager.environment(watchdog_us=200_000))
    seen = manager.messages().count("WATCHDOG=1")
    until(lambda: manager.messages().count("WATCHDOG=1") > seen + 3, "signs of life")
    server.process.send_signal(19)  # SIGSTOP
    try:
        until(lambda: "T (stopped)" in Path(f"/proc/{server.process.pid}/status").read_text(), "it stands")
        seen = manager.messages().count("WATCHDOG=1")
        with pytest.raises(AssertionError):
            until(lambda: manager.messages().count("WATCHDOG=1") > seen, "", patience_s=1)
    finally:
        server.process.send_signal(18)  # SIGCONT


def test_a_hung_model_is_no_hung_server(serve: Serve, manager: Manager) -> None:
    server = serve("sleepy.py", environment=manager.environment(watchdog_us=200_000))
    server.shut_gate()
    answer = server.submit("/sleepy", "ab")
    until(server.calls, "the model hangs")
    seen = manager.messages().count("WATCHDOG=1")
    until(lambda: manager.messages().count("WATCHDOG=1") > seen + 3, "signs of life")
    server.open_gate()
    assert answer.result().json() == "ba"


def test_models_do_not_see_the_service_manager(serve: Serve, manager: Manager) -> None:
    server = serve("nosy.py", environment=manager.environment(watchdog_us=60_000_000))
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        assert server.post("/nosy", name).json() == "nothing"


def test_a_socket_that_is_not_there_is_said_and_no_more(serve: Serve, tmp_path: Path) -> None:
    server = serve("noop.py", environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert "NOTIFY_SOCKET" in server.log()
