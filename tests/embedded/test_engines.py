"""Engines that are started and closed without a block, and a program that is a server."""

import asyncio
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jitney
import pytest
from test_programs import MODEL, run, start
from witnesses import Witness, app, wait


def test_an_engine_is_started_and_closed_without_a_block() -> None:
    async def main() -> None:
        engine = jitney.run(app("noop"))
        models = await engine.start()
        assert await models.shout("a") == "A"
        assert await engine.start() is models
        await engine.close()
        await engine.close()
        with pytest.raises(jitney.Draining):
            await models.shout("a")
        with pytest.raises(jitney.EngineFailed, match="this engine has been closed"):
            await engine.start()

    asyncio.run(main())
    engine = jitney.run_sync(app("noop"))
    models = engine.start()
    assert models.shout("a") == "A"
    assert engine.start() is models
    engine.close()
    engine.close()
    with pytest.raises(jitney.EngineFailed, match="this engine has been closed"):
        engine.start()


def test_a_second_start_during_the_first_says_what_to_do() -> None:
    async def main() -> None:
        engine = jitney.run(app("noop"))
        first = asyncio.create_task(engine.start())
        await asyncio.sleep(0)
        with pytest.raises(jitney.EngineFailed, match=r"wait until the first call of start\(\) returns"):
            await engine.start()
        assert await (await first).shout("a") == "A"
        await engine.close()

    asyncio.run(main())
    engine = jitney.run_sync(app("noop"))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(engine.start)
        wait(
            lambda: engine._core is not None,  # pyright: ignore[reportPrivateUsage]
            "the first start has begun",
        )
        with pytest.raises(jitney.EngineFailed, match=r"wait until the first call of start\(\) returns"):
            engine.start()
        assert first.result().shout("a") == "A"
    engine.close()


def test_an_engine_that_was_never_started_is_closed_in_silence() -> None:
    jitney.run_sync(app("noop")).close()
    asyncio.run(jitney.run(app("noop")).close())


def test_an_open_engine_is_closed_when_the_interpreter_ends(tmp_path: Path, witness: Witness) -> None:
    program = f"""
    import asyncio, atexit
    import jitney

    async def begin():
        global models
        models = await jitney.run({app("noop")!r}).start()
        print(await models.shout("async"))

    def call_late():
        try:
            other.shout("late")
        except jitney.Draining:
            print("drained")

    atexit.register(call_late)
    other = jitney.run_sync({app("noop")!r}).start()
    asyncio.run(begin())
    print(other.shout("sync"))
    """
    ran = run(tmp_path, program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "ASYNC\nSYNC\ndrained\n"


@pytest.mark.parametrize("prompt", [True, False])
def test_a_cell_that_is_run_again_closes_the_engine_before(tmp_path: Path, prompt: bool) -> None:
    program = f"""
    import asyncio, sys
    import jitney
    {'sys.ps1 = ">>> "' if prompt else ""}

    def state(models):
        try:
            return models.shout("a")
        except (jitney.Draining, jitney.EngineFailed):
            return "closed"

    first = jitney.run_sync({app("noop")!r}).start()
    other = jitney.run_sync({app("strict")!r}).start()
    second = jitney.run_sync({app("noop")!r}, options={{"shout.max_batch_size": 2}}).start()
    print(state(first), state(second), other.strict({{"name": "tea"}}))

    async def cells():
        third = await jitney.run({app("noop")!r}).start()
        fourth = await jitney.run({app("noop")!r}).start()
        try:
            print(state(second), await third.shout("b"))
        except jitney.EngineFailed:
            print(state(second), "closed")
        print(await fourth.shout("c"))

    asyncio.run(cells())
    """
    ran = run(tmp_path, program)
    assert ran.returncode == 0, ran.stderr
    expected = ["closed A 1 tea", "closed closed", "C"] if prompt else ["A A 1 tea", "A B", "C"]
    assert ran.stdout.splitlines() == expected


SERVER = (
    MODEL
    + """
    if __name__ == "__main__":
        import signal
        before = signal.getsignal(signal.SIGINT)
        jitney.serve(Shout, listen=["unix:server.sock"], options={"shout.max_batch_size": 5}, log_level="info")
        assert signal.getsignal(signal.SIGINT) is before
        print("went on")
"""
)


def ask(folder: Path, path: str, *arguments: str) -> str:
    """Send a request to the server of the program."""
    command = ["curl", "-s", "--unix-socket", "server.sock", f"http://localhost{path}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, SERVER)
    wait(lambda: '"ready": true' in ask(tmp_path, "/readyz"), "the server is ready")
    assert ask(tmp_path, "/shout", "-d", '"hello"') == '"HELLO"'
    assert '"max_batch_size":5' in ask(tmp_path, "/config").replace(" ", "")
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert out == "went on\n"
    assert "serving" in said or "listening" in said, said


def test_a_second_server_in_one_process_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path, SERVER + '        jitney.serve(Shout, listen=["unix:server.sock"])\n')
    wait(lambda: '"ready": true' in ask(tmp_path, "/readyz"), "the server is ready")
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "went on\n"), said
    assert "EngineFailed: jitney.serve: a server or an engine ran in this process before" in said


def test_a_script_that_cannot_serve_exits_as_the_command_does(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import jitney

        @jitney.deployment
        class Broken:
            def __init__(self) -> None:
                raise RuntimeError("no weights")
            def predict(self, texts: list[str]) -> list[str]: ...

        if __name__ == "__main__":
            jitney.serve(Broken, port=0)
        """,
    )
    assert ran.returncode == 1, ran.stderr
    assert "no weights" in ran.stderr


def test_a_script_that_serves_without_the_guard_is_told_so(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + "    jitney.serve(Shout, port=0)\n")
    assert ran.returncode == 1
    assert "put what this program does under if __name__" in ran.stderr


def test_what_is_wrong_with_the_arguments_of_serve_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(jitney.ConfigError, match="did you mean `max_connections`"):
        jitney.serve(app("noop"), max_conections=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(jitney.TargetError, match="name what to run"):
        jitney.serve(port=0)


def test_one_class_is_two_models_of_a_script(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import jitney

        class Scale:
            def __init__(self, factor: int, offset: int = 0) -> None:
                self.factor, self.offset = factor, offset
            def predict(self, numbers: list[int]) -> list[int]:
                return [number * self.factor + self.offset for number in numbers]

        twice = jitney.configure(Scale, name="twice")(2)
        thrice = jitney.configure(Scale, name="thrice", replicas=2)(factor=3, offset=1)

        if __name__ == "__main__":
            with jitney.run_sync(twice, thrice, options={"thrice.init.offset": 2}) as models:
                print(models[twice](5), models[thrice](5), models.twice(1))
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "10 17 2\n"


def test_replicas_are_spread_over_the_devices_that_their_worker_finds(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import sys
        from types import SimpleNamespace as Fake
        import jitney

        sys.modules["torch"] = Fake(cuda=Fake(is_available=lambda: True, device_count=lambda: 2))

        @jitney.deployment(replicas=2, devices="auto", batched=False)
        class Place:
            def __init__(self) -> None:
                self.device = jitney.context().device
                print(self.device, flush=True)
            def predict(self, number: int) -> str:
                return self.device

        if __name__ == "__main__":
            with jitney.run_sync(Place) as models:
                assert models[Place](1) in ("cuda:0", "cuda:1")
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["place/0 | cuda:0", "place/1 | cuda:1"]
