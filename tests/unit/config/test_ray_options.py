"""Options of replicas in a Ray cluster."""

import json
from pathlib import Path

import pytest
from jitney.config.layers import Overrides, resolve
from jitney.config.reading import read_overrides
from jitney.errors import ConfigError
from jitney.front.settings import compose

ENVIRONMENT = {"working_dir": ".", "env_vars": {"A": "1"}}


def test_a_runtime_environment_is_an_object_in_code_and_in_the_file_and_text_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "jitney.toml"
    file.write_text('[deployment.a]\nruntime_env = { working_dir = ".", env_vars = { A = "1" } }\n')
    text = json.dumps(ENVIRONMENT)
    found = [
        resolve("a", {"runtime_env": ENVIRONMENT}, Overrides()),
        resolve("a", {}, read_overrides(str(file), {}, [])),
        resolve("a", {}, read_overrides(None, {"JITNEY_A__RUNTIME_ENV": text}, [])),
        resolve("a", {}, read_overrides(None, {}, [f"a.runtime_env={text}"])),
    ]
    assert [json.loads(one.options.runtime_env or "") for one in found] == [ENVIRONMENT] * 4


@pytest.mark.parametrize("wrong", ["working_dir", "[1]", "3", "{"])
def test_text_that_is_no_object_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"--set a\.runtime_env.*expected a JSON object, got"):
        read_overrides(None, {}, [f"a.runtime_env={wrong}"])


def test_without_ray_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").touch()
    monkeypatch.setattr("jitney.front.settings.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ConfigError, match=r"--ray-address: Ray is not installed here; .*pip install 'ray>=2.49'"):
        compose(["model.py"], {"ray_address": "auto"}, Overrides(), None, None)


def test_where_replicas_connect_is_a_tcp_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").touch()
    monkeypatch.setattr("jitney.front.settings.find_spec", lambda _: __spec__)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ConfigError, match="--ray-listen: cannot listen on 'unix:a': write tcp:HOST:PORT; PORT"):
        compose(["model.py"], {"ray_address": "auto", "ray_listen": "unix:a"}, Overrides(), None, None)


@pytest.mark.parametrize("address", ["127.0.0.1", "http://127.0.0.1:6379", "ray://head", "head:", "local", ":6379"])
def test_an_address_that_is_none_is_refused_before_anything_is_started(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").touch()
    with pytest.raises(ConfigError, match=r"--ray-address is '.*': write HOST:PORT, ray://HOST:PORT or auto"):
        compose(["model.py"], {"ray_address": address}, Overrides(), None, None)


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://10.0.0.1:10001", "[::1]:6379"])
def test_an_address_of_a_cluster_is_taken(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").touch()
    monkeypatch.setattr("jitney.front.settings.find_spec", lambda _: __spec__)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert compose(["model.py"], {"ray_address": address}, Overrides(), None, None).server.ray_address == address
