"""`--reload`: a change starts the server again, a signal ends it once, and its exit code comes back. No processes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jitney.cli import reload
from jitney.cli.reload import Reloader
from jitney.cli.watch import is_watched, python_changes


class Child:
    """A process that ends when it gets a signal, or when a script says so."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number != reload.CHANGED:
            self.returncode = 0

    def kill(self) -> None:
        self.returncode = -9

    def wait(self) -> int:
        assert self.returncode is not None, "would wait without end"
        return self.returncode


Step = Callable[[], object]


class World:
    """Plays a script: each report of changes runs a step, which may end the child; True stands for a change."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.children: list[Child] = []
        self.steps: list[Step] = []
        self.reloader = Reloader(["serve"], self.changes(), folder / "jitney.toml", {"SOME": "thing"})
        monkeypatch.setattr("jitney.cli.reload.subprocess.Popen", self.start)

    def changes(self) -> Iterator[bool]:
        assert not self.children, "watching begins before the first child"
        yield False
        while True:
            yield self.steps.pop(0)() is True

    def start(self, command: list[str], **how: Any) -> Child:
        assert command == ["serve"]
        assert how["process_group"] == 0
        assert how["env"]["SOME"] == "thing"
        self.children.append(Child())
        return self.children[-1]

    def change(self) -> bool:
        return True

    def configure(self) -> None:
        with (self.folder / "jitney.toml").open("a") as file:
            file.write("# changed\n")

    def end(self, code: int) -> Step:
        def step() -> None:
            self.children[-1].returncode = code

        return step

    def interrupt(self) -> None:
        signal.raise_signal(signal.SIGINT)

    def nothing(self) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_change_of_python_is_signalled_to_the_server_which_goes_on(world: World) -> None:
    world.steps = [world.nothing, world.change, world.nothing, world.change, world.interrupt]
    assert world.reloader.run() == 0
    assert [child.signals for child in world.children] == [[reload.CHANGED, reload.CHANGED, signal.SIGINT]]


def test_a_change_of_the_configuration_starts_the_server_again(world: World) -> None:
    world.steps = [world.nothing, world.configure, world.nothing, world.nothing, world.interrupt]
    assert world.reloader.run() == 0
    assert [child.signals for child in world.children] == [[signal.SIGTERM], [signal.SIGINT]]


@pytest.mark.parametrize("code", [75, -reload.CHANGED])
def test_a_server_that_asks_to_be_started_again_is(world: World, capsys: pytest.CaptureFixture[str], code: int) -> None:
    world.steps = [world.end(code), world.interrupt]
    assert world.reloader.run() == 0
    assert len(world.children) == 2 and "waiting" not in capsys.readouterr().err


def test_a_server_that_asks_again_and_again_waits_for_a_change(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.steps = [world.end(75), world.end(75), world.nothing, world.change, world.interrupt]
    assert world.reloader.run() == 0
    assert len(world.children) == 3 and "differ from process to process; waiting" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["change", "configure"])
def test_broken_code_is_reported_and_a_change_is_waited_for(
    world: World, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    world.steps = [world.end(3), world.nothing, getattr(world, kind), world.interrupt]
    assert world.reloader.run() == 0
    assert "exit code 3; waiting for a change" in capsys.readouterr().err
    assert len(world.children) == 2


def test_ctrl_c_while_waiting_for_a_change_ends(world: World) -> None:
    world.steps = [world.end(3), world.nothing, world.interrupt]
    assert world.reloader.run() == 3


def test_the_exit_code_is_passed_on(world: World) -> None:
    def stop_badly() -> None:
        world.interrupt()
        world.children[-1].returncode = -11

    world.steps = [stop_badly]
    assert world.reloader.run() == 128 + 11


def test_a_server_that_ends_well_by_itself_ends_the_watch(world: World) -> None:
    world.steps = [world.end(0)]
    assert world.reloader.run() == 0


def test_handlers_are_put_back_and_no_child_is_left(world: World) -> None:
    def burst() -> None:
        raise RuntimeError("a bug")

    before = signal.getsignal(signal.SIGTERM)
    world.steps = [burst]
    with pytest.raises(RuntimeError):
        world.reloader.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert world.children[0].returncode == -9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.py", True),
        ("sub/part.py", True),
        ("data.bin", False),
        (".venv/lib.py", False),
        ("__pycache__/x.py", False),
        ("node_modules/a/n.py", False),
        ("../beside.py", False),
    ],
)
def test_only_python_files_that_users_edit_are_watched(name: str, expected: bool) -> None:
    folder = Path.cwd() / ".cache/target/project"
    assert is_watched((folder / name).resolve(), [folder]) is expected


def test_a_change_is_reported_without_a_walk_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for walk in ("walk", "scandir", "listdir"):
        monkeypatch.setattr(os, walk, lambda *_: pytest.fail("a tree may be large, and is not walked"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    changes = python_changes([tmp_path])
    assert next(changes) is False
    (tmp_path / "deep").mkdir()
    for number in range(20):
        (tmp_path / f"log-{number}.txt").write_text("x")
        assert next(changes) is False
    (tmp_path / "deep" / "model.py").write_text("")
    assert any(changed for changed, _ in zip(changes, range(100), strict=False))


def test_no_folder_to_watch_is_no_change(tmp_path: Path) -> None:
    changes = python_changes([])
    assert [next(changes), next(changes)] == [False, False]
