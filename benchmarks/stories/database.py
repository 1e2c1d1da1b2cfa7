"""Something to wait for: answers each byte after 5 ms. Prints its port; ends with its standard input.

Not a timer of the program's own: those of an event loop are rounded up to whole milliseconds whenever anything else
wakes it, which would be taken for the model's doing.
"""

import socket
import sys
import threading
import time

IO_S = 0.005


def answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while asked := connection.recv(1):
        time.sleep(IO_S)
        connection.sendall(asked)


def accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    sys.stdin.read()
