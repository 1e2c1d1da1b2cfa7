"""`--reload`: a change starts the server again, a signal ends it once, and its exit code comes back. No processes."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitney.cli import reload
from jitney.cli.reload import Reloader


class Child:
    """Plays a script: each call of wait runs a step, which may end the child."""

    def __init__(self, steps: list[Callable[["Child"], None]]) -> None:
        self.steps = steps
        self.code: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number != reload.CHANGED:
            self.code = 0

    def kill(self) -> None:
        self.code = -9

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None and self.steps:
            self.steps.pop(0)(self)
        if self.code is None:
            assert timeout is not None, "would wait for ever"
            raise subprocess.TimeoutExpired("jitney", timeout)
        return self.code


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.children: list[Child] = []
        self.scripts: list[list[Callable[[Child], None]]] = []
        self.naps: list[Callable[[], None]] = []
        self.reloader = Reloader(["serve"], [folder], [folder / "jitney.toml"])
        monkeypatch.setattr("jitney.cli.reload.subprocess.Popen", self.start)
        monkeypatch.setattr("jitney.cli.reload.time.sleep", lambda _seconds: self.naps.pop(0)())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    def start(self, command: list[str], **how: Any) -> Child:
        assert command == ["serve"]
        assert how["process_group"] == 0
        assert reload.PARENT_VARIABLE in how["env"]
        child = Child(self.scripts.pop(0))
        self.children.append(child)
        return child

    def change(self, _: object = None) -> None:
        path = self.folder / "model.py"
        path.write_text(path.read_text() + "# changed\n" if path.exists() else "")

    def configure(self, _: object = None) -> None:
        with (self.folder / "jitney.toml").open("a") as file:
            file.write("# changed\n")

    def end(self, code: int) -> Callable[[Child], None]:
        def step(child: Child) -> None:
            child.code = code

        return step

    def interrupt(self, _: object = None) -> None:
        signal.raise_signal(signal.SIGINT)

    def nothing(self, _: object = None) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_change_of_python_is_told_to_the_server_which_goes_on(world: World) -> None:
    world.scripts = [[world.nothing, world.change, world.nothing, world.change, world.interrupt]]
    assert world.reloader.run() == 0
    assert [child.signals for child in world.children] == [[reload.CHANGED, reload.CHANGED, signal.SIGINT]]


def test_a_change_of_the_configuration_starts_the_server_again(world: World) -> None:
    world.scripts = [[world.nothing, world.configure], [world.nothing, world.interrupt]]
    assert world.reloader.run() == 0
    assert [child.signals for child in world.children] == [[signal.SIGTERM], [signal.SIGINT]]


@pytest.mark.parametrize("code", [75, -reload.CHANGED])
def test_a_server_that_asks_to_be_started_again_is(world: World, capsys: pytest.CaptureFixture[str], code: int) -> None:
    world.scripts = [[world.end(code)], [world.interrupt]]
    assert world.reloader.run() == 0
    assert len(world.children) == 2 and "waiting" not in capsys.readouterr().err


def test_a_server_that_asks_again_and_again_waits_for_a_change(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.scripts = [[world.end(75)], [world.end(75)], [world.interrupt]]
    world.naps = [world.nothing, world.change]
    assert world.reloader.run() == 0
    assert len(world.children) == 3 and "differ from process to process; waiting" in capsys.readouterr().err


def test_broken_code_is_said_and_a_change_is_waited_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.scripts = [[world.end(3)], [world.interrupt]]
    world.naps = [world.nothing, world.change]
    assert world.reloader.run() == 0
    assert "exit code 3; waiting for a change" in capsys.readouterr().err
    assert len(world.children) == 2


def test_ctrl_c_while_waiting_for_a_change_ends(world: World) -> None:
    world.scripts = [[world.end(3)]]
    world.naps = [world.interrupt]
    assert world.reloader.run() == 3


def test_the_exit_code_is_passed_on(world: World) -> None:
    def stop_badly(child: Child) -> None:
        world.interrupt()
        child.code = -11

    world.scripts = [[stop_badly]]
    assert world.reloader.run() == 128 + 11


def test_a_server_that_ends_well_by_itself_ends_the_watch(world: World) -> None:
    world.scripts = [[world.end(0)]]
    assert world.reloader.run() == 0


def test_handlers_are_put_back_and_no_child_is_left(world: World) -> None:
    def burst(_: Child) -> None:
        raise RuntimeError("a bug")

    before = signal.getsignal(signal.SIGTERM)
    world.scripts = [[burst]]
    with pytest.raises(RuntimeError):
        world.reloader.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert world.children[0].code == -9


def test_only_python_files_that_users_edit_are_watched(world: World) -> None:
    for name in ("model.py", "data.bin", ".venv/lib.py", "__pycache__/x.py", "sub/part.py", "node_modules/n.py"):
        path = world.folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    seen = {str(Path(name).relative_to(world.folder)) for name in world.reloader.look()}
    assert seen == {"model.py", "sub/part.py"}
