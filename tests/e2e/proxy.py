"""A TCP proxy whose connections a test can cut: a network that fails while both ends live."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Proxy:
    """Listens on loopback and passes bytes on, in both directions."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"

    def lead_to(self, address: str) -> None:
        """Pass connections on to this address (`tcp:HOST:PORT`) from now on."""
        _, host, port = address.split(":")
        self._target = (host, int(port))

    def cut(self) -> int:
        """End every connection that is open; returns how many there were."""
        with self._lock:
            ended, self._open = self._open, []
        for end in ended:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(ended) // 2

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                assert self._target, "the test says where it leads to first"
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._open += [near, far]
                self.connections += 1
                threading.Thread(target=_connect, args=(near, far), daemon=True).start()


def _connect(near: socket.socket, far: socket.socket) -> None:
    with near, far:
        back = threading.Thread(target=_pass_on, args=(far, near))
        back.start()
        _pass_on(near, far)
        back.join()


def _pass_on(source: socket.socket, goal: socket.socket) -> None:
    with suppress(OSError):
        while read := source.recv(1 << 16):
            goal.sendall(read)
    for end in (source, goal):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy() -> Generator[Proxy]:
    """A proxy that ends with the block."""
    made = Proxy()
    try:
        yield made
    finally:
        made.close()
