"""Programs with an engine inside, as their authors would start them: how they begin, fork, die and end."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jitney
import pytest
from witnesses import APPS, Witness, wait

MODEL = """
    import jitney

    @jitney.deployment
    class Shout:
        def predict(self, texts: list[str]) -> list[str]:
            return [text.upper() for text in texts]
"""


def start(folder: Path, text: str, *arguments: str) -> "subprocess.Popen[str]":
    """Save a program as program.py and run it."""
    (folder / "program.py").write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, "-u", *(arguments or ("program.py",))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(APPS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end."""
    process = start(folder, text, *arguments)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def line(process: "subprocess.Popen[str]") -> str:
    """Wait for a line that the program prints."""
    assert process.stdout is not None and process.stderr is not None
    text = process.stdout.readline().strip()
    assert text, process.stderr.read()
    return text


def ended(process: "subprocess.Popen[str]") -> str:
    """Wait for the end of the program; what it printed."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_a_script_runs_its_own_class(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        MODEL
        + """
    if __name__ == "__main__":
        with jitney.run_sync(Shout) as models:
            print(models[Shout]("hello"), models.shout("again"))
    """,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "HELLO AGAIN\n"


def test_a_module_of_the_script_s_folder_is_found_from_any_other(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "my_models.py").write_text(textwrap.dedent(MODEL))
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
        import jitney
        from my_models import Shout

        if __name__ == "__main__":
            with jitney.run_sync(Shout) as models:
                print(models.shout("found"))
        """)
    )
    ran = run(tmp_path / "elsewhere", "", "../main.py")
    assert ran.stdout == "FOUND\n", ran.stderr


def test_the_class_of_a_package_that_is_run_is_found(tmp_path: Path) -> None:
    package = tmp_path / "shouting"
    package.mkdir()
    (package / "__init__.py").touch()
    guarded = """
    if __name__ == "__main__":
        with jitney.run_sync(Shout) as models:
            print(models[Shout]("found"))
    """
    for name in ("__main__", "part"):
        (package / f"{name}.py").write_text(textwrap.dedent(MODEL + guarded))
    for module in ("shouting", "shouting.part"):
        ran = run(tmp_path, "", "-m", module)
        assert ran.stdout == "FOUND\n", ran.stderr


def test_a_spawned_child_runs_a_class_of_the_script(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        MODEL
        + """
    import multiprocessing

    def work():
        with jitney.run_sync(Shout) as models:
            print(models[Shout]("from a child"))

    if __name__ == "__main__":
        child = multiprocessing.get_context("spawn").Process(target=work)
        child.start()
        child.join()
    """,
    )
    assert ran.stdout == "FROM A CHILD\n", ran.stderr


def test_constructor_arguments_keep_their_types(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
    import jitney

    @jitney.deployment
    class Given:
        def __init__(self, scale=1, sizes=(), table=None, name="", none=1):
            self.arguments = [scale, sizes, table, name, none]

        def predict(self, texts: list[str]) -> list[str]:
            return [repr(self.arguments)] * len(texts)

    if __name__ == "__main__":
        arguments = {"scale": 2, "sizes": [1, 2], "table": {"a": 1.5}, "name": "7", "none": None}
        with jitney.run_sync(Given, options={f"given.init.{key}": value for key, value in arguments.items()}) as models:
            print(models.given("x"))
        try:
            jitney.run_sync(Given, options={"given.init.scale": object()})
        except jitney.ConfigError as error:
            print(error)
    """,
    )
    printed, refused = ran.stdout.splitlines() or [ran.stderr, ""]
    assert printed == "[2, [1, 2], {'a': 1.5}, '7', None]", ran.stderr
    assert refused == "options: `given.init.scale`: object is not supported; write it as a string"


def test_a_missing_guard_is_told(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        MODEL
        + """
    with jitney.run_sync(Shout) as models:
        print(models.shout("never"))
    """,
    )
    assert ran.returncode == 1
    assert "TargetError" in ran.stderr.splitlines()[-1]
    assert "put what this program does under if __name__" in ran.stderr


def test_a_class_of_a_script_on_stdin_is_refused_with_the_remedy(tmp_path: Path) -> None:
    program = textwrap.dedent(MODEL) + "jitney.run(Shout)\n"
    command = [sys.executable, "-"]
    ran = subprocess.run(command, input=program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "jitney.errors.TargetError: Shout was typed into a notebook or a prompt" in ran.stderr


def test_a_class_of_a_notebook_cell_is_refused_with_the_remedy(tmp_path: Path) -> None:
    program = f"""
    import sys
    main = sys.modules["__main__"]
    del main.__file__
    text = {textwrap.dedent(MODEL)!r}
    exec(text, vars(main))
    try:
        jitney.run(Shout)
    except jitney.TargetError as error:
        print(error)
    """
    assert "%%writefile" in run(tmp_path, program).stdout


def test_what_is_no_deployment_is_refused(tmp_path: Path) -> None:
    program = """
    import jitney
    class Bare: ...
    def local():
        @jitney.deployment
        def inside(texts: list[str]) -> list[str]: return texts
        return inside
    for target in (Bare, local()):
        try:
            jitney.run(target)
        except jitney.TargetError as error:
            print(error)
    try:
        jitney.run()
    except jitney.TargetError as error:
        print(error)
    """
    bare, local, nothing = run(tmp_path, program).stdout.splitlines()
    assert bare == "Bare is not a deployment; put @jitney.deployment above it"
    assert "define it at the top level" in local
    assert nothing.startswith("name what to run")


def test_a_model_that_cannot_be_loaded_is_an_exception_and_leaves_nobody(tmp_path: Path) -> None:
    program = f"""
    import jitney
    try:
        with jitney.run_sync({str(APPS / "fails_to_load.py")!r}):
            print("loaded")
    except jitney.TargetError as error:
        print("refused:", error)
    """
    assert run(tmp_path, program).stdout.startswith("refused:")


def test_calls_in_a_fork_are_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        MODEL
        + """
    import asyncio, os

    async def main():
        async with jitney.run(Shout) as models:
            print(await models.shout("before"))
            with jitney.run_sync("program.py") as sync:
                child = os.fork()
                if child == 0:
                    for call in (lambda: sync.shout("x"), lambda: asyncio.run(models.shout("x"))):
                        try:
                            call()
                        except jitney.EngineFailed as error:
                            print(str(error)[:24])
                    raise SystemExit(7)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                print(sync.shout("after"), await models.shout("too"))

    if __name__ == "__main__":
        asyncio.run(main())
    """,
    )
    assert ran.stdout.splitlines()[:2] == ["BEFORE", "this process was forked "], ran.stderr
    assert ran.stdout.splitlines()[2:] == ["this process was forked ", "7", "AFTER TOO"], ran.stderr


def test_a_killed_program_takes_its_workers_with_it(tmp_path: Path, witness: Witness) -> None:
    process = start(
        tmp_path,
        MODEL
        + """
    import time
    if __name__ == "__main__":
        with jitney.run_sync(Shout, options={"shout.replicas": 2}) as models:
            print(models.shout("ready"))
            time.sleep(60)
    """,
    )
    assert line(process) == "READY"
    assert len(witness.workers()) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    witness.assert_nobody_left()


def test_a_loop_that_is_closed_with_calls_in_flight_cancels_them(tmp_path: Path, witness: Witness) -> None:
    witness.shut_gate()
    process = start(
        tmp_path,
        f"""
        import asyncio, gc, os
        import jitney

        async def leave(models):
            asyncio.get_running_loop().create_task(models.sleepy("held"))
            while "held" not in open({str(witness.calls_file)!r}).read():  # its load is recorded there too
                await asyncio.sleep(0.005)
            asyncio.get_running_loop().create_task(models.sleepy("queued"))
            await asyncio.sleep(0)  # it is sent

        async def begin():
            run = jitney.run({str(APPS / "sleepy.py")!r})
            return run, await run.__aenter__()

        loop = asyncio.new_event_loop()
        run, models = loop.run_until_complete(begin())
        loop.run_until_complete(leave(models))
        loop.close()
        gc.collect()
        print("closed")

        async def again():
            answer = await models.sleepy("again")
            await run.__aexit__(None, None, None)
            return answer

        print(asyncio.run(again()))
        """,
    )
    assert line(process) == "closed"
    witness.open_gate()
    assert ended(process) == "niaga\n"
    assert "queued" not in witness.computed()


def test_threads_that_come_and_go_may_each_have_an_engine(tmp_path: Path) -> None:
    """What first loads the Rust side here is a thread that ends."""
    program = f"""
    import asyncio, threading
    import jitney

    def start_and_end():
        async def main():
            async with jitney.run({str(APPS / "noop.py")!r}) as models:
                assert await models.shout("a") == "A"
        asyncio.run(main())

    for _ in range(6):
        thread = threading.Thread(target=start_and_end)
        thread.start()
        thread.join()
    print("right")
    """
    ran = run(tmp_path, program)
    assert (ran.returncode, ran.stdout) == (0, "right\n"), ran.stderr


def test_ctrl_c_ends_a_call_that_waits(tmp_path: Path, witness: Witness) -> None:
    witness.shut_gate()
    process = start(
        tmp_path,
        f"""
        import jitney
        try:
            with jitney.run_sync({str(APPS / "sleepy.py")!r}, drain_timeout_s=0.1) as models:
                print("calling")
                models.sleepy("held")
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert line(process) == "calling"
    wait(witness.calls, "the model has the call")
    process.send_signal(signal.SIGINT)
    assert ended(process) == "interrupted\n"


def test_workers_that_are_killed_under_load_lose_no_call(tmp_path: Path, witness: Witness) -> None:
    process = start(
        tmp_path,
        f"""
        import asyncio, os
        import jitney

        async def main():
            async with jitney.run({str(APPS / "sleepy.py")!r}, options={{"sleepy.replicas": 2}}) as models:
                print("ready")
                count = 0
                async def ask(name):
                    nonlocal count
                    while not os.path.exists("stop"):
                        count += 1
                        text = f"{{name}}-{{count}}"
                        assert await models.sleepy(text) == text[::-1]
                await asyncio.gather(*(ask(n) for n in range(40)))
                print("right")

        asyncio.run(main())
        """,
    )
    assert line(process) == "ready"
    for _ in range(3):
        before = len(witness.calls())
        wait(lambda: len(witness.calls()) > before + 50, "they are at work")  # noqa: B023 -- called at once
        wait(lambda: len(witness.workers()) == 2, "there are two again")
        os.kill(witness.workers()[0], signal.SIGKILL)
    (tmp_path / "stop").touch()
    assert ended(process) == "right\n"


def test_a_worker_that_is_lost_with_an_item_that_may_not_run_twice_is_an_exception(tmp_path: Path) -> None:
    program = f"""
    import asyncio, jitney
    async def main():
        async with jitney.run({str(APPS / "crashing.py")!r}) as models:
            try:
                await models.once("kill")
            except jitney.WorkerLost as error:
                print(error.reason, error.http_status)
            print(await models.once("fine"))
    asyncio.run(main())
    """
    ran = run(tmp_path, program)
    assert ran.stdout == "worker_lost 502\nenif\n", ran.stderr


def test_a_crash_loop_refuses_calls_with_a_reason(tmp_path: Path) -> None:
    program = """
    import itertools, os
    import jitney

    @jitney.deployment
    class Exits:
        def predict(self, numbers: list[int]) -> list[int]:
            os._exit(1)

    if __name__ == "__main__":
        with jitney.run_sync(Exits) as models:
            for number in itertools.count():
                try:
                    models.exits(number, timeout_s=30)
                except jitney.CrashLooping as error:
                    print(error.reason, error.http_status, error.retry_after_s is not None)
                    break
                except jitney.WorkerLost:
                    print("lost")
    """
    ran = run(tmp_path, program)
    assert ran.returncode == 0, ran.stderr
    *lost, last = ran.stdout.splitlines()
    assert lost and set(lost) == {"lost"}
    assert last.startswith("crash_looping 503")


if not sys.platform.startswith("linux"):
    pytest.skip("looks into /proc", allow_module_level=True)


def test_workers_of_a_program_do_not_see_the_keys_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNEY_API_KEYS", "a-key-for-tests")
    with jitney.run_sync(str(APPS / "nosy.py")) as models:
        assert models.nosy("JITNEY_API_KEYS") == "nothing"


def test_the_log_of_an_engine_goes_where_the_program_sends_it(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        MODEL
        + """
    import logging

    if __name__ == "__main__":
        logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
        with jitney.run_sync(Shout, log_level="info") as models:
            print(models.shout("hello"))
    """,
    )
    assert ran.returncode == 0, ran.stderr
    assert "jitney INFO shout/0: loaded and warm" in ran.stderr
