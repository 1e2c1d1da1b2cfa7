"""`jitney.connect`: several programs share the engine of one server."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import jitney
import numpy as np
import pytest
from jitney.embedded import connect as connections
from witnesses import Witness, app, until, wait

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
    from harness import Server


TAG_JSON = 0


@pytest.fixture
def serve(tmp_path: Path, witness: Witness) -> Iterator["Serve"]:
    started = Serve(tmp_path, witness)
    yield started
    started.finish()


class Serve:
    """Starts servers that programs can call, at one socket."""

    def __init__(self, folder: Path, witness: Witness) -> None:
        self.socket = folder / "programs.sock"
        self.place = f"unix:{self.socket}"
        self._folder = folder
        self._witness = witness
        self._servers: list[Server] = []

    def __call__(
        self,
        *names: str,
        arguments: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        wait: bool = True,
    ) -> Server:
        files = {"JITNEY_TEST_CALLS": str(self._witness.calls_file), "JITNEY_TEST_GATE": str(self._witness.gate_file)}
        server = Server(
            self._folder,
            [app(name) for name in names],
            ("--listen-programs", self.place, *arguments),
            {**files, **(environment or {})},
        )
        self._servers.append(server)
        return server.wait_ready() if wait else server

    def finish(self) -> None:
        self._witness.open_gate()
        for server in self._servers:
            server.finish()


def test_a_program_calls_as_if_the_engine_were_its_own(serve: Serve) -> None:
    # A short stop of the machine makes the wait of 3,000 calls too long. No call may be refused here.
    server = serve("noop", "arrays", "strict", arguments=("--set", "shout.max_wait_s=60"))
    assert stat.S_IMODE(serve.socket.stat().st_mode) == 0o600

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            assert await models.noop({"a": [1, None]}) == {"a": [1, None]}
            assert await models.shout("hello") == "HELLO"
            big = np.random.default_rng(0).random((500, 500), np.float32)
            np.testing.assert_array_equal(await models.double(big), big * 2)
            orders = [{"name": "bread"}, {"name": "nothing"}, {"count": 2}]
            with pytest.raises(jitney.InvalidInput, match="this product is not sold"):
                await models.strict.many(orders)
            bread, nothing, nameless = await models.strict.many(orders, return_exceptions=True)
            assert bread == "1 bread"
            assert isinstance(nothing, jitney.InvalidInput) and nothing.http_status == 422
            assert isinstance(nameless, jitney.InvalidInput) and "name" in nameless.message
            with pytest.raises(jitney.NotFound, match="did you mean 'shout'"):
                models["shoot"]
            answers = await asyncio.gather(*(models.shout(f"t{n}") for n in range(3000)))
            assert answers == [f"T{n}" for n in range(3000)]

    asyncio.run(main())
    assert server.metric("jitney_requests_total", deployment="shout", outcome="ok") == 3001
    with jitney.connect_sync(serve.place) as models:
        assert models.shout("sync") == "SYNC"


def test_a_connection_is_started_and_closed_without_a_block(serve: Serve) -> None:
    server = serve("noop")

    async def main() -> None:
        connection = jitney.connect(serve.place)
        models, other = await asyncio.gather(connection.start(), connection.start())
        assert models is other is await connection.start()
        assert await models.shout("a") == "A"
        await connection.close()
        await connection.close()
        with pytest.raises(jitney.Disconnected):
            await models.shout("a")
        assert await (await connection.start()).shout("b") == "B"
        await connection.close()

    asyncio.run(main())
    connection = jitney.connect_sync(serve.place)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(connection.start) for _ in range(32)]
        started = [future.result() for future in futures]
    assert all(models is started[0] for models in started), "all threads share one connection"
    assert server.metric("jitney_requests_total", deployment="shout", outcome="ok") == 2
    assert started[0].shout("a") == "A"
    connection.close()
    connection.close()
    with pytest.raises(jitney.Disconnected):
        started[0].shout("a")
    assert connection.start().shout("c") == "C"
    connection.close()


FORKING = """
import os, sys
import jitney

connection = jitney.connect_sync(sys.argv[1])
assert connection.start().shout("parent") == "PARENT"
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        answered = [connection.start().shout(f"child {number}") for _ in range(2)]
        os._exit(0 if answered == [f"CHILD {number}"] * 2 else 1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
assert connection.start().shout("again") == "AGAIN"
"""


def test_each_fork_gets_its_own_connection(serve: Serve) -> None:
    serve("noop")
    ran = subprocess.run(
        [sys.executable, "-c", FORKING, serve.place], capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_programs_and_http_share_batches(serve: Serve, witness: Witness) -> None:
    server = serve("sleepy")

    async def main() -> None:
        async with jitney.connect(serve.place) as left, jitney.connect(serve.place) as right:
            witness.shut_gate()
            first = asyncio.create_task(left.sleepy("first"))
            await until(witness.calls, "the first is with the model")
            calls = [asyncio.create_task(model.sleepy(name)) for model, name in ((left, "left"), (right, "right"))]
            http = server.submit("/sleepy", "http")
            await until(lambda: server.items_inside() == 4, "four items are inside")
            witness.open_gate()
            assert await asyncio.gather(first, *calls) == ["tsrif", "tfel", "thgir"]
            assert http.result().json() == "ptth"

    asyncio.run(main())
    assert [len(items) for items in witness.calls()] == [1, 3]


def test_a_cancelled_call_and_a_program_that_leaves_take_their_items_along(serve: Serve, witness: Witness) -> None:
    server = serve("sleepy")

    async def main() -> None:
        async with jitney.connect(serve.place) as stays:
            witness.shut_gate()
            first = asyncio.create_task(stays.sleepy("first"))
            await until(witness.calls, "the first is with the model")
            async with jitney.connect(serve.place) as leaves:
                gone = asyncio.create_task(leaves.sleepy("gone"))
                cancelled = asyncio.create_task(stays.sleepy("cancelled"))
                await until(lambda: server.items_inside() == 3, "three items are inside")
                cancelled.cancel()
            with pytest.raises(jitney.Disconnected):
                await gone
            await until(lambda: server.items_inside() == 1, "only the first is inside")
            witness.open_gate()
            assert await first == "tsrif"

    asyncio.run(main())
    assert witness.computed() == ["first"]


def test_a_server_that_restarts_is_an_error_with_a_name_and_then_there_again(serve: Serve, witness: Witness) -> None:
    server = serve("sleepy")

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            assert await models.sleepy("before") == "erofeb"
            witness.shut_gate()
            held = asyncio.create_task(models.sleepy("held"))
            await until(lambda: server.items_inside() == 1, "it is inside")
            server.process.kill()
            server.process.wait()
            with pytest.raises(jitney.Disconnected, match="was lost while it had this call") as caught:
                await asyncio.wait_for(held, 10)
            assert caught.value.http_status == 503
            with pytest.raises(jitney.Disconnected, match="is not reached"):
                await asyncio.wait_for(models.sleepy("the server is down"), 10)
            witness.open_gate()
            await asyncio.to_thread(server.process.wait)
            await asyncio.to_thread(serve, "sleepy")

            async def again() -> str:
                while True:
                    try:
                        return await models.sleepy("after")
                    except jitney.Disconnected:
                        await asyncio.sleep(0.05)

            assert await asyncio.wait_for(again(), 20) == "retfa"

    asyncio.run(main())


def test_a_server_that_ends_in_order_answers_what_is_in(serve: Serve, witness: Witness) -> None:
    server = serve("sleepy")

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            witness.shut_gate()
            held = asyncio.create_task(models.sleepy("held"))
            await until(lambda: server.items_inside() == 1, "it is inside")
            server.terminate()
            await until(lambda: "shutting down" in server.log(), "it has begun to end")
            witness.open_gate()
            assert await asyncio.wait_for(held, 20) == "dleh"

    asyncio.run(main())


def test_a_program_that_comes_before_the_models_waits_for_them(serve: Serve, witness: Witness) -> None:
    """`slow_load` loads while the gate is shut."""
    witness.shut_gate()
    server = serve("sleepy", "slow_load", wait=False)

    async def main() -> None:
        connecting = asyncio.create_task(connected(serve.place))
        await until(lambda: "loading" in server.log(), "the models are being loaded")
        assert not connecting.done()
        witness.open_gate()
        assert await asyncio.wait_for(connecting, 30) == "yks"

    async def connected(place: str) -> str:
        async with jitney.connect(place) as models:
            return await models.sleepy("sky")

    asyncio.run(main())
    server.wait_ready()


def test_who_connects_while_the_models_load_is_told_that_they_do(serve: Serve, witness: Witness) -> None:
    witness.shut_gate()
    server = serve("slow_load", wait=False)
    asyncio.run(until(lambda: "loading" in server.log(), "the models are being loaded"))
    with pytest.raises(jitney.Disconnected, match=r"its models are loading.*must connect when it is first asked"):
        jitney.connect_sync(serve.place, timeout_s=1).__enter__()
    witness.open_gate()
    server.wait_ready()


def test_a_key_is_asked_for_and_tcp_needs_one(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tcp = f"tcp:127.0.0.1:{port}"
    serve("noop", arguments=("--listen-programs", tcp), environment={"JITNEY_API_KEYS": "sesame-sesame-sesame"})

    async def main() -> None:
        for place in (tcp, serve.place):
            async with jitney.connect(place, key="sesame-sesame-sesame") as models:
                assert await models.shout("open") == "OPEN"
            for wrong, told in ((None, "asks for a key"), ("wrong", "none of this server's")):
                with pytest.raises(jitney.Disconnected, match=told):
                    async with jitney.connect(place, key=wrong):
                        pass

    asyncio.run(main())


def test_tcp_without_keys_is_refused_at_start(serve: Serve, tmp_path: Path) -> None:
    server = Server(tmp_path, [app("noop")], ("--listen-programs", "tcp:127.0.0.1:0"), {})
    assert server.wait_exit() == 1
    assert "needs a key" in server.log()
    server.finish()


def test_the_socket_of_programs_never_takes_a_worker(serve: Serve) -> None:
    """A worker's hello, with whatever secret, ends the connection."""
    serve("noop")
    body = b'{"version": "1", "token": "x", "host": "h", "devices": []}'
    hello = b"JY" + bytes([1, 1]) + len(body).to_bytes(4, "little") + bytes(8) + body
    for first in (hello, b"GET / HTTP/1.1\r\n\r\n", os.urandom(64)):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(serve.socket))
            stranger.settimeout(15)
            stranger.sendall(first)
            assert stranger.recv(100) == b""
    with jitney.connect_sync(serve.place) as models:
        assert models.shout("still there") == "STILL THERE"


def test_nobody_at_a_place_is_told_within_the_timeout(tmp_path: Path) -> None:
    nobody = jitney.connect_sync(f"unix:{tmp_path}/nobody", timeout_s=0.3)
    with pytest.raises(jitney.Disconnected, match="is not reached"), nobody:
        pass
    with pytest.raises(jitney.ConfigError, match="write unix:PATH or tcp:HOST:PORT"):
        jitney.connect("localhost")


def test_a_long_wait_for_a_server_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"unix:{tmp_path}/nobody"

    async def connect() -> None:
        async with jitney.connect(place, timeout_s=1.5):
            pass

    with pytest.raises(jitney.Disconnected), jitney.connect_sync(place, timeout_s=0.2):
        pass
    assert not caplog.messages, "a short wait says nothing"
    monkeypatch.setattr(connections, "_SILENT_S", 0.05)
    with pytest.raises(jitney.Disconnected), jitney.connect_sync(place, timeout_s=1.5):
        pass
    with pytest.raises(jitney.Disconnected):
        asyncio.run(connect())
    waits = f"still waiting for the models of the server at {place}, for at most 1.5 s (timeout_s): is it running?"
    assert caplog.messages == [waits, waits]


def test_a_document_that_the_program_may_change_is_copied(serve: Serve, witness: Witness) -> None:
    server = serve("sleepy")
    document = bytearray(b'"' + b"ab" * 50_000 + b'"')
    with jitney.connect_sync(serve.place) as models, ThreadPoolExecutor(1) as pool:
        witness.shut_gate()
        entrance = models.sleepy._callee.entrance  # pyright: ignore[reportPrivateUsage]
        calling = pool.submit(entrance.call_and_wait, TAG_JSON, document, None, "normal", None)
        asyncio.run(until(lambda: server.items_inside() == 1, "it is inside"))
        document[1:3] = b"longer"  # a BufferError, if the engine still held this memory
        witness.open_gate()
        assert "ba" * 50_000 in str(calling.result(30))


def test_an_http_port_is_named_at_once(serve: Serve) -> None:
    port = serve("sleepy").port
    wrong = jitney.connect_sync(f"tcp:127.0.0.1:{port}", timeout_s=300)
    with pytest.raises(jitney.Disconnected, match=r"this is an HTTP server.*--listen-programs"), wrong:
        pass


@pytest.mark.parametrize("nonsense", [0, -1, float("nan")])
def test_a_time_to_connect_that_is_none_is_refused(nonsense: float, tmp_path: Path) -> None:
    nobody = jitney.connect_sync(f"unix:{tmp_path}/nobody", timeout_s=nonsense)
    with pytest.raises(ValueError, match="timeout_s is a length above 0"), nobody:
        pass


def test_a_server_may_be_waited_for_as_long_as_it_takes(serve: Serve) -> None:
    serve("noop")
    with jitney.connect_sync(serve.place, timeout_s=float("inf")) as models:
        assert models.shout("hello") == "HELLO"


@pytest.mark.parametrize("show", [False, True])
def test_what_an_exception_says_is_in_the_servers_log_next_to_the_id_of_the_call(serve: Serve, show: bool) -> None:
    server = serve("crashing", arguments=("--show-errors",) if show else ())
    with jitney.connect_sync(serve.place) as models, pytest.raises(jitney.ModelFailed) as caught:
        models.crashing("raise this", request_id="order-7")
    words = "the model cannot do raise this"
    assert caught.value.request_id == "order-7"
    assert (words in caught.value.message) == show
    wait(lambda: f"request order-7: model_failed: RuntimeError: {words}" in server.log(), "the server says so")
    wait(lambda: "(request order-7)" in server.log(), "its worker has the traceback")


def test_streams_come_through_a_connection(serve: Serve, witness: Witness, tmp_path: Path) -> None:
    # A long answer makes the predicted wait of 100 calls too long. No call may be refused here.
    server = serve("spelling", "showing", "noop", arguments=("--set", "spell.max_wait_s=60"))
    gate = tmp_path / "gate"

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            async with models.spell.stream("hey") as parts:
                assert [part async for part in parts] == ["h", "e", "y"]
            counting = models.counting.stream({"to": 20_000})
            numbers = [part["number"] async for part in counting]
            assert numbers == list(range(20_000)), "more than a window"
            assert counting.end == jitney.End(answer=20_000, reason="length", usage=jitney.Usage(1, 20_000))
            [first, second] = [part async for part in models.showing.arrays.stream(2)]
            np.testing.assert_array_equal([first, second], np.stack([np.zeros((2, 3)), np.ones((2, 3))]))
            assert [len(part) async for part in models.showing.flood.stream(5)] == [1 << 20] * 5
            late = await models.spell.stream("text " * 20_000).begin()
            await asyncio.sleep(0.3)  # much waits, and texts that wait are put together
            assert await _joined(late) == "text " * 20_000
            failing = models.spell.stream("ab!", request_id="mine-7")
            with pytest.raises(jitney.ModelFailed, match="the server's log says why"):
                _ = [part async for part in failing]
            assert failing.received == 2
            with pytest.raises(jitney.InvalidInput, match="to"):
                await models.counting.stream({"to": "x"}).begin()
            with pytest.raises(TypeError, match="answers once"):
                models.shout.stream("x")
            late_gate = tmp_path / "late"
            late = models.showing.ticks.stream(str(late_gate), timeout_s=2)
            with pytest.raises(jitney.DeadlineExceeded):
                _ = [part async for part in late]
            assert late.received == 1
            late_gate.touch()
            computed = len(witness.calls())
            async with models.showing.ticks.stream(str(gate)) as ticks:
                async for _ in ticks:
                    break
            gate.touch()
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]
            # The cancel passes two processes, and with an open gate steps take no time. Without it a million are made.
            assert await witness.calls_at_rest() < computed + 1000, "the item ended when its reader left"
            many = [models.spell.stream(f"text {n}") for n in range(100)]
            spelled = await asyncio.gather(*(_joined(parts) for parts in many))
            assert spelled == [f"text {n}" for n in range(100)]

    asyncio.run(main())
    wait(lambda: "mine-7" in server.log() and "no shouting" in server.log(), "the failure in the log")
    with jitney.connect_sync(serve.place) as models:
        assert list(models.spell.stream("sync")) == list("sync")
    assert server.metric("jitney_requests_total", deployment="spell", outcome="ok") == 103


async def _joined(parts: "jitney.Parts[str]") -> str:
    return "".join([part async for part in parts])


def test_a_program_that_does_not_read_its_stream_holds_the_model_up(serve: Serve, witness: Witness) -> None:
    serve("showing", "spelling")

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            async with models.showing.flood.stream(100_000) as parts:
                await anext(parts)
                made = await witness.calls_at_rest()
                assert 1 < made < 200, "the model is held up"
                assert await models.spell("other calls go on") == "other calls go on"
                for number in range(1, made + 20):
                    assert int.from_bytes((await anext(parts))[:8], "little") == number, "and goes on in order"
                assert len(witness.calls()) > made
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]

    asyncio.run(main())


def test_a_server_that_is_lost_ends_the_streams_of_its_programs(serve: Serve, tmp_path: Path) -> None:
    server = serve("showing")

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            parts = models.showing.ticks.stream(str(tmp_path / "never"))
            assert await anext(parts) == "0"
            server.process.kill()
            server.process.wait()
            with pytest.raises(jitney.Disconnected, match="while it had this call"):
                await anext(parts)
            assert parts.received == 1

    asyncio.run(main())


def test_a_server_that_drains_finishes_the_streams_of_its_programs(serve: Serve, tmp_path: Path) -> None:
    server = serve("spelling")
    gate = tmp_path / "gate"

    async def main() -> None:
        async with jitney.connect(serve.place) as models:
            parts = models.counting.stream({"to": 3, "gate": str(gate)})
            assert await anext(parts) == {"number": 0}
            server.terminate()
            await until(lambda: not server.is_ready(), "the server drains")
            gate.touch()
            assert [part["number"] async for part in parts] == [1, 2]

    asyncio.run(main())
    assert server.process.wait(60) == 0
