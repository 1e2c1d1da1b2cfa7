"""Many answers in parts at once: idle ones, more than the model can compute, and one that no client reads."""

import json
import selectors
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Serve, Server, until
from test_slow_readers import ENDLESS, LINES, Stalled, numbers, paused, resident, wait_paused

IDLE = 2000
"""Open streams. 10,000 work too, where the limit of open files is 20,000: 18 KiB of memory each, all end."""
MOST_BYTES_OF_ONE = 26 << 10
"""Memory of the front for an open stream, in bytes: 23.5 to 24.3 KiB in a release build, about 11 in a debug build."""


def opened(port: int, gate: Path) -> socket.socket:
    """Ask for a stream, and do not wait for it."""
    body = json.dumps(str(gate)).encode()
    head = f"POST /idle HTTP/1.1\r\nhost: localhost\r\naccept: {LINES}\r\ncontent-type: application/json\r\n"
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return stream


def ended(streams: list[socket.socket]) -> Counter[bool]:
    """Read all streams to their ends. Returns how many of them had all parts and an end."""
    found = {stream: bytearray() for stream in streams}
    selector = selectors.DefaultSelector()
    for stream in streams:
        selector.register(stream, selectors.EVENT_READ)
    left = len(streams)
    while left:
        ready = selector.select(60)
        assert ready, f"{left} streams have no end"
        for key, _ in ready:
            stream = key.fileobj
            assert isinstance(stream, socket.socket)
            if data := stream.recv(1 << 16):
                found[stream] += data
            else:
                selector.unregister(stream)
                stream.close()
                left -= 1
    whole = (b'"begun"', b'"ended"', b'"reason":"stop"', b"\r\n0\r\n\r\n")
    return Counter(all(text in body for text in whole) for body in found.values())


def test_thousands_of_idle_streams_take_little_memory_and_all_end(serve: Serve, tmp_path: Path) -> None:
    server = serve("crowded.py")
    gate = tmp_path / "gate"
    assert server.get("/livez").status == 200
    before = resident(server)
    streams = [opened(server.port, gate) for _ in range(IDLE)]
    until(lambda: server.metric("jitney_parts_total", deployment="idle") == IDLE, "each has its first part", 60)
    each = (resident(server) - before) / IDLE
    assert each < MOST_BYTES_OF_ONE, f"{each:.0f} bytes of each stream"
    assert server.get("/livez").status == 200
    gate.touch()
    assert ended(streams) == {True: IDLE}
    until(lambda: server.metric("jitney_running_items", deployment="idle") == 0, "all have ended")
    assert server.metric("jitney_streams_total", deployment="idle", outcome="ok") == IDLE
    until(lambda: server.metric("jitney_connections") == 1, "their connections are closed")
    assert server.metric("jitney_untaken_bytes") == 0


def test_ten_times_as_many_streams_as_fit_lose_nothing_and_the_others_are_refused(serve: Serve) -> None:
    server = serve("crowded.py", arguments=("--set", "busy.policy=eager"))
    clients, rounds = 80, 10
    answers = Counter[str]()
    lock = threading.Lock()

    def ask(_: int) -> None:
        with server.client() as client:
            for _ in range(rounds):
                reply = client.post("/busy", "x", {"accept": LINES})
                if reply.status == 200:
                    *parts, end = [json.loads(line) for line in reply.body.splitlines()]
                    is_whole = [part["part"] for part in parts] == [str(number) for number in range(20)]
                    answer = "ok" if is_whole and "end" in end else f"broken: {end}"
                else:
                    answer = f"{reply.status} {reply.reason}"
                    assert 1 <= int(reply.headers["retry-after"]) <= 30
                with lock:
                    answers[answer] += 1

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, range(clients)))
    refused = {name for name in answers if name.startswith("429")}
    assert set(answers) - refused == {"ok"}, answers
    assert refused <= {"429 queue_full", "429 wait_too_long"} and refused, answers
    assert answers["ok"] >= 24, "what has room is computed"
    made = server.metric("jitney_parts_total", deployment="busy")
    assert made == 20 * answers["ok"], "no step is made for a client that is refused"
    assert server.metric("jitney_streams_total", deployment="busy", outcome="ok") == answers["ok"]
    # Full steps: most of them have all the items that fit.
    steps = server.metric("jitney_steps_total", deployment="busy")
    assert made / steps > 4, f"{made} parts in {steps} steps of 8 places"
    assert_nothing_left(server, "busy")


def test_a_client_that_never_reads_costs_the_63_others_no_part(serve: Serve) -> None:
    server = serve("flowing.py", arguments=("--set", "steps.max_batch_size=64"))
    stalled = Stalled(server, "/steps", ENDLESS)
    wait_paused(server)
    before = server.metric("jitney_parts_total", deployment="steps")

    def read(_: int) -> list[int]:
        reply = server.post("/steps", {"parts": 200, "letters": 100}, {"accept": LINES})
        return numbers(reply.body.decode().splitlines())

    with ThreadPoolExecutor(63) as threads:
        assert all(found == list(range(200)) for found in threads.map(read, range(63)))
    assert server.metric("jitney_parts_total", deployment="steps") - before == 63 * 200
    assert paused(server) == 1
    stalled.close()
    assert_nothing_left(server, "steps")


def test_all_streams_that_outlast_the_shutdown_end_with_an_error(serve: Serve, tmp_path: Path) -> None:
    server = serve("crowded.py", arguments=("--drain-timeout-s", "0.2", "--set", "idle.max_batch_size=500"))
    streams = [opened(server.port, tmp_path / "gate") for _ in range(600)]
    until(lambda: server.metric("jitney_parts_total", deployment="idle") == 500, "the others wait")
    server.terminate()
    bodies = list[bytes]()
    for stream in streams:
        with stream, stream.makefile("rb") as file:
            bodies.append(file.read())
    begun = [body for body in bodies if b'"begun"' in body]
    assert len(begun) == 500 and all(body.endswith(b"\r\n0\r\n\r\n") for body in begun)
    assert all(b'"reason":"draining"' in body for body in bodies), "a line, or a status"
    assert server.wait_exit() == 1


def assert_nothing_left(server: Server, deployment: str) -> None:
    """Every item has ended, and nothing waits for a client."""
    until(lambda: server.items_inside() == 0, "every item has ended")
    until(lambda: server.metric("jitney_active_items", deployment=deployment) == 0, "the model holds none")
    until(lambda: server.metric("jitney_connections") == 1, "the connections are closed")
    assert server.metric("jitney_untaken_bytes") == 0
