"""The command line says clearly what is wrong, and derives its flags from the table of options."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import jitney
import pytest
from jitney.cli.main import main
from jitney.cli.reload import Reloader
from jitney.cli.serve import watched
from jitney.config.layers import deployment_options, server_options
from jitney.errors import ConfigError


class FakeCore(ModuleType):
    def __init__(self) -> None:
        super().__init__("jitney._core")
        self.settings: list[dict[str, object]] = []
        self.parents: list[int] = []
        self.rereads: list[Callable[[], tuple[str, list[str]]] | None] = []

    def serve(self, settings: str, reread: Callable[[], tuple[str, list[str]]] | None = None) -> int:
        self.settings.append(json.loads(settings))
        self.rereads.append(reread)
        return 7

    def adopt_parent(self, parent: int) -> None:
        self.parents.append(parent)


@pytest.fixture(autouse=True)
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    fake = FakeCore()
    monkeypatch.setitem(sys.modules, "jitney._core", fake)
    monkeypatch.setattr(jitney, "_core", fake, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("raise SystemExit('never imported')\n")
    return fake


def test_serve_hands_its_settings_over_and_returns_the_exit_code(core: FakeCore) -> None:
    arguments = ["serve", "model.py", "--port", "0", "--set", "model.max_batch_size=4", "--max-connections", "9"]
    assert main([*arguments, "--allow-unauthenticated", "--log-level", "debug"]) == 7
    server = core.settings[0]["server"]
    assert isinstance(server, dict)
    assert server["listen"] == ["tcp:127.0.0.1:0"]
    assert server["max_connections"] == 9
    assert server["allow_unauthenticated"] is True
    assert server["log_level"] == "debug"
    assert not core.parents


def test_options_are_read_again_when_the_server_asks(core: FakeCore, tmp_path: Path) -> None:
    """At SIGHUP the log level is in force; of the others the server says that they need a restart."""
    file = tmp_path / "jitney.toml"
    file.write_text("[server]\nlog_level = 'warn'\n")
    assert main(["serve", "model.py", "--max-connections", "9"]) == 7
    (reread,) = core.rereads
    assert reread is not None
    assert reread() == ("warn", [])
    file.write_text("[server]\nlog_level = 'debug'\nmax_connections = 7\nmax_body_bytes = 5\n")
    assert reread() == ("debug", ["max_body_bytes"]), "a flag wins over the file, also now"
    file.write_text("[server]\nlog_level = 'loud'\n")
    with pytest.raises(ConfigError, match=r"jitney\.toml.*log_level"):
        reread()


def test_options_of_the_only_deployment_are_flags(core: FakeCore) -> None:
    assert main(["serve", "model.py", "--replicas", "2", "--devices", "cuda:0,cuda:1", "--retry", "false"]) == 7
    [target] = core.settings[0]["targets"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert target["overrides"]["flags"] == {"replicas": 2, "devices": ["cuda:0", "cuda:1"], "retry": False}


def test_every_option_of_a_deployment_is_a_flag_and_none_is_one_of_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    flags = [option for option in deployment_options().values() if not option.in_code_only]
    assert [option.name for option in flags if f"--{option.name.replace('_', '-')} " not in text] == []
    assert not deployment_options().keys() & server_options().keys()


def test_serve_under_reload_follows_its_parent(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNEY_RELOAD_PARENT", "123")
    assert main(["serve", "model.py"]) == 7
    assert core.parents == [123]
    assert "JITNEY_RELOAD_PARENT" not in os.environ


def test_every_server_option_is_a_flag_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for option in server_options().values():
        assert f"--{option.name.replace('_', '-')}" in text
        assert option.meaning.split()[0] in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sreve", "model.py"], "did you mean 'serve'?"),
        (["serve", "model.py", "--prot", "1"], "did you mean '--port'?"),
        (["serve", "model.py", "--zzz"], "see jitney serve --help"),
        (["check", "model.py", "--max_batch_size", "3"], "did you mean '--max-batch-size'?"),
        (["bench", "http://127.0.0.1:1/m", "--replicas", "2"], "--replicas is an option of a TARGET that is started"),
        (["bench", "--compare", "a.json", "b.json", "--replicas", "2"], "leave --replicas away"),
        (["serve", "--max-batch-size=3", "model.py", "other.py"], "write --set NAME.max_batch_size=3"),
        (["serve", "model.py", "--max-batch-size", "0"], "--max-batch-size: expected a whole"),
        (["serve", "model.py", "--workers", "2"], "did you mean '--replicas'?"),
        (["serve", "model.py", "--port", "80x"], "1 to 65535, or 0 for any free port, not '80x'"),
        (["serve", "model.py", "--port", "-1"], "--port"),
        (["serve", "model.py", "--port", "65536"], "1 to 65535"),
        (["serve", "model.py", "--max-connections", "many"], "invalid int value: 'many'"),
        (["serve"], "TARGET"),
        (["serve", "model.ipynb"], "jupyter nbconvert --to script model.ipynb"),
        (["serve", "model.py", "--max-conections=1"], "did you mean '--max-connections'?"),
        (["serve", "modell.py"], "did you mean 'model.py'?"),
        (["serve", "model.py", "--set", "model.max_batch=4"], "did you mean `max_batch_size`?"),
        (["serve", "model.py", "--set", "nonsense"], "expected NAME.option=value"),
        (["serve", "model.py", "--listen", "8000"], "write tcp:HOST:PORT or unix:PATH"),
        (["serve", "model.py", "--log-level", "loud"], "expected one of"),
        (["serve", "model.py", "--config", "gone.toml"], "gone.toml"),
        (["serve", "model.py", "--port", "1", "other.py"], "'other.py' stands apart from the other targets"),
        (["models", "model.py"], "takes no further argument, and 'model.py' is one"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], message: str, core: FakeCore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not core.settings


def test_models_are_listed_without_being_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "minilm" in capsys.readouterr().out
    assert "jitney.models.minilm" not in sys.modules or "onnxruntime" in sys.modules


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("jitney ")


def test_without_a_command_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "serve" in capsys.readouterr().out


def test_only_what_its_user_edits_is_watched(tmp_path: Path) -> None:
    assert watched("sub/model.py:Name") == [Path("sub")]
    for name in ("minilm", "numpy.linalg:norm", "json.decoder", "_ctypes", "sys", "jitney.models.minilm:MiniLM"):
        assert watched(name) == [], name
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    assert watched("mine.text:Name") == [tmp_path / "mine"]
    (tmp_path / "one.py").touch()
    assert watched("one:Name") == [tmp_path]


def test_packages_without_init_and_those_below_src_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("spaced", "numpy", "src/laid_out", "src/spaced", "lib/site-packages/spaced"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/laid_out/__init__.py").touch()
    assert watched("spaced.text:Name") == [tmp_path / "spaced"]
    assert watched("numpy.linalg:norm") == []
    assert watched("laid_out.text:Name") == []
    monkeypatch.setattr(sys, "path", [str(tmp_path / "src"), str(tmp_path / "lib/site-packages"), *sys.path])
    assert watched("laid_out.text:Name") == [tmp_path / "src/laid_out"]
    assert set(watched("spaced.text:Name")) == {tmp_path / "spaced", tmp_path / "src/spaced"}


def test_reload_says_of_which_target_it_watches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.py").touch()
    watched_folders: list[Path] = []

    def python_changes(folders: list[Path]) -> Iterator[bool]:
        watched_folders.extend(folders)
        return iter([False])

    monkeypatch.setattr("jitney.cli.serve.python_changes", python_changes)
    monkeypatch.setattr(Reloader, "run", lambda _: 0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert main(["serve", "one", "minilm", "--reload"]) == 0
    assert watched_folders == [tmp_path]
    assert capsys.readouterr().err == "jitney: --reload watches no files of minilm\n"


def test_reload_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert main(["serve", "model.py", "--reload"]) == 2
    assert "--reload needs watchfiles, which is not installed: pip install watchfiles" in capsys.readouterr().err
