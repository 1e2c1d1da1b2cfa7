"""The command line becomes settings. What is known to be wrong is refused before anything starts."""

import json
import sys
from pathlib import Path

import pytest
from jitney.config.layers import Overrides
from jitney.errors import ConfigError, TargetError
from jitney.front.settings import check_listen, compose, read_layers
from jitney.front.targets import find_target


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedder.py").write_text("raise SystemExit('the front never imports user code')\n")
    package = tmp_path / "my_models"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('the front never imports user code')\n")
    return tmp_path


def settings(*targets: str, host: str | None = None, port: int | None = None, **flags: object) -> dict[str, object]:
    return json.loads(compose(targets, flags, Overrides(), host, port).to_json())


def test_settings_hold_all_that_the_server_needs() -> None:
    found = settings("embedder.py")
    assert found["python"] == sys.executable
    assert isinstance(found["cores"], int) and found["cores"] >= 1
    overrides = json.loads(Overrides().to_json())
    assert found["targets"] == [{"target": "embedder.py", "overrides": overrides, "workers": 1, "shares": 1}]
    server = found["server"]
    assert isinstance(server, dict)
    assert server["listen"] == ["tcp:127.0.0.1:8000"]


def test_settings_say_where_options_came_from() -> None:
    overrides = read_layers(None, {"JITNEY_LOG_LEVEL": "debug"}, [])
    found = json.loads(compose(["embedder.py"], {"max_connections": 5}, overrides, None, None).to_json())
    sources = found["server_sources"]
    assert sources.keys() == found["server"].keys()
    assert (sources["max_connections"], sources["log_level"], sources["listen"]) == ("set", "environment", "default")


def test_names_are_told_by_the_spelling_of_their_layer() -> None:
    """`--set EMBEDDER.…` is a misspelling, `JITNEY_EMBEDDER__…` is not: the server must know the difference."""
    Path("jitney.toml").write_text("[deployment.embedder]\nreplicas = 2\n")
    sets = ["EMBEDER.replicas=3", "other.init.path=x"]
    overrides = read_layers(None, {"JITNEY_EMBEDDER__RETRY": "false"}, sets)
    overrides.give("more.init.k", 2)
    found = json.loads(compose(["embedder.py"], {}, overrides, None, None).to_json())
    assert found["override_names"] == {
        "EMBEDER": "--set EMBEDER.replicas",
        "embedder": "jitney.toml [deployment.embedder]",
        "more": "options: `more.init.k`",
        "other": "--set other.init.path",
    }
    assert found["environment_names"] == {"EMBEDDER": "JITNEY_EMBEDDER__RETRY"}


@pytest.mark.parametrize(
    ("host", "port", "listen", "expected"),
    [
        (None, 9000, None, ["tcp:127.0.0.1:9000"]),
        ("0.0.0.0", None, None, ["tcp:0.0.0.0:8000"]),
        ("::1", 0, None, ["tcp:[::1]:0"]),
        (None, 9000, ["unix:/tmp/j"], ["unix:/tmp/j", "tcp:127.0.0.1:9000"]),
    ],
)
def test_host_and_port_are_short_for_a_place_to_listen(
    host: str | None, port: int | None, listen: list[str] | None, expected: list[str]
) -> None:
    flags = {} if listen is None else {"listen": listen}
    server = settings("embedder.py", host=host, port=port, **flags)["server"]
    assert isinstance(server, dict)
    assert server["listen"] == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"JITNEY_PORT": "9001"}, ("tcp:127.0.0.1:9001",)),
        ({"JITNEY_HOST": "::1"}, ("tcp:[::1]:8000",)),
        # Kubernetes sets this in every pod if a service is called jitney.
        (
            {"JITNEY_HOST": "::1", "JITNEY_PORT": "tcp://10.96.3.7:80", "JITNEY_PORT_80_TCP_ADDR": "10.96.3.7"},
            ("tcp:[::1]:8000",),
        ),
        ({"JITNEY_PORT": "9001", "JITNEY_LISTEN": "unix:/tmp/j"}, ("unix:/tmp/j",)),
    ],
)
def test_the_environment_sets_server_options(environ: dict[str, str], expected: tuple[str, ...]) -> None:
    overrides = read_layers(None, {**environ, "JITNEY_LOG_LEVEL": "debug"}, [])
    server = compose(["embedder.py"], {}, overrides, None, None).server
    assert server.listen == expected
    assert server.log_level == "debug"


def test_a_port_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="JITNEY_PORT is 'http'"):
        read_layers(None, {"JITNEY_PORT": "http"}, [])


def test_jitney_toml_of_the_current_folder_is_read(folder: Path) -> None:
    (folder / "jitney.toml").write_text("[server]\nlog_format = 'json'\n[deployment.e]\nmax_batch_size = 3\n")
    overrides = read_layers(None, {}, [])
    assert compose(["embedder.py"], {}, overrides, None, None).server.log_format == "json"
    assert overrides.names().keys() == {"e"}
    assert compose(["embedder.py"], {"log_format": "text"}, overrides, None, None).server.log_format == "text"


@pytest.mark.parametrize("where", ["tcp:8000", "tcp:x:", "tcp:x:70000", "udp:x:1", "unix:", "127.0.0.1:8000"])
def test_what_is_no_place_to_listen_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="tcp:HOST:PORT or unix:PATH"):
        check_listen(where, "--listen")


@pytest.mark.parametrize("target", ["embedder.py", "./embedder.py:Embedder", "my_models", "my_models.text:Embedder"])
def test_targets_are_found_without_being_imported(target: str) -> None:
    assert find_target(target) == target


def test_a_ready_made_model_is_a_target() -> None:
    assert find_target("minilm") == "jitney.models.minilm:MiniLM"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("embeder.py", r"no file 'embeder.py' in /.+; did you mean 'embedder.py'\?"),
        ("minillm", r"did you mean 'minilm'\?"),
        ("embedder", r"no package 'embedder'|embedder"),
        ("nowhere/model.py", "no file 'nowhere/model.py'"),
        ("no_such_package.module:Name", "no package 'no_such_package'"),
        ("embedder.py:not a name", "not the name of a class"),
        ("http://example.org", "is not a target|not the name of"),
        ("./my_models", "is a folder"),
    ],
)
def test_what_is_no_target_is_refused_with_a_hint(target: str, message: str) -> None:
    if target == "embedder":  # a module of the current folder is fine
        assert find_target(target) == target
        return
    with pytest.raises(TargetError, match=message):
        find_target(target)


def test_a_target_given_twice_is_refused() -> None:
    with pytest.raises(TargetError, match="replicas=2"):
        settings("embedder.py", "embedder.py")


def test_a_folder_is_no_target_and_a_file_in_it_is_named(folder: Path) -> None:
    (folder / "models").mkdir()
    with pytest.raises(TargetError, match=r"'models' is a folder; name a file in it, such as models/model\.py"):
        find_target("models")
    (folder / "models" / "mine.py").touch()
    with pytest.raises(TargetError, match=r"such as models/mine\.py"):
        find_target("models/")


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"JITNEY_LISTEN": "9000"}, {}, "JITNEY_LISTEN: cannot listen on '9000'"),
        ({"JITNEY_PORT": "99999"}, {}, "JITNEY_PORT: cannot listen on 'tcp:127.0.0.1:99999'"),
        ({"JITNEY_LOG_LEVEL": "loud"}, {}, "JITNEY_LOG_LEVEL: expected one of"),
        ({"JITNEY_SERVER__LOG_LEVEL": "loud"}, {}, "JITNEY_SERVER__LOG_LEVEL: expected one of"),
        ({}, {"listen": ["9000"]}, "--listen: cannot listen on '9000'"),
    ],
)
def test_a_wrong_option_of_the_server_is_named_as_the_user_wrote_it(
    environ: dict[str, str], flags: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        compose(["embedder.py"], flags, read_layers(None, environ, []), None, None)
    assert message in str(refused.value)


def test_a_keyword_of_a_program_is_named_as_one() -> None:
    with pytest.raises(ConfigError, match=r"^log_level=: expected one of"):
        compose(["embedder.py"], {"log_level": "loud"}, Overrides(), None, None, place_of="{}=".format)
