"""Reads the layers of options above the decorator: the file, the environment and `--set`.

ConfigError names the layer and the key of what is wrong.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from jitney.config.layers import SERVER, Layer, Overrides, check_plain, environment_name
from jitney.config.option import parse, unknown
from jitney.config.options import deployment_options, server_options
from jitney.errors import ConfigError


def read_overrides(toml_path: str | None, environ: Mapping[str, str], sets: Sequence[str]) -> Overrides:
    """Read all layers above the decorator; ConfigError names the layer and the key of whatever is wrong."""
    overrides = Overrides()
    if toml_path is not None:
        _read_file(overrides.file, toml_path)
    _read_environment(overrides.environment, environ)
    for argument in sets:
        _read_set(overrides.sets, argument)
    return overrides


def _read_file(layer: Layer, path: str) -> None:
    import tomllib  # noqa: PLC0415 - takes 0.5 MB, and most servers have no file

    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} (file) cannot be read: {error}") from error
    for key in document:
        if key not in ("deployment", SERVER):
            raise ConfigError(f"{path} (file): {unknown('table', key, ('deployment', SERVER))}")
    for key, value in _table_in(path, "server", document.get(SERVER, {})).items():
        layer.put(SERVER, key, parse(server_options(), (f"{path} [server]", "file"), key, value))
    for name, table in _table_in(path, "deployment", document.get("deployment", {})).items():
        _read_file_deployment(layer, path, name, table)


def _read_file_deployment(layer: Layer, path: str, name: str, table: object) -> None:
    where = f"{path} [deployment.{name}]"
    options = dict(_table_in(path, f"deployment.{name}", table))
    init = _table_in(path, f"deployment.{name}.init", options.pop("init", {}))
    layer.options[name] = {
        key: parse(deployment_options(), (where, "file"), key, value) for key, value in options.items()
    }
    for key, value in init.items():
        check_plain(f"{path} [deployment.{name}.init] (file): `{key}`", value)
    if init:
        layer.init[name] = dict(init)


def _table_in(path: str, key: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} (file): `{key}` is a table, written [{key}], not {value!r}")
    return cast("dict[str, object]", value)


def _read_environment(layer: Layer, environ: Mapping[str, str]) -> None:
    for variable, text in sorted(environ.items()):
        name, separator, key = variable.removeprefix("JITNEY_").rpartition("__")
        if not variable.startswith("JITNEY_") or not separator:
            continue
        if not name:
            raise ConfigError(f"{variable} (environment) names no deployment; write JITNEY_NAME__OPTION")
        table = server_options() if name == environment_name(SERVER) else deployment_options()
        if name.endswith("__INIT") and key.lower() not in table:
            raise ConfigError(
                f"{variable} (environment): constructor arguments are given in the file, [deployment.NAME.init], "
                f"or by --set NAME.init.{key.lower()}=VALUE"
            )
        layer.put(name, key.lower(), parse(table, (variable, "environment"), key.lower(), text))


def _read_set(layer: Layer, argument: str) -> None:
    left, separator, text = argument.partition("=")
    path = left.strip().split(".")
    if not separator or len(path) < 2 or not all(path):
        raise ConfigError(f"--set {argument}: expected NAME.option=value")
    # Names may hold dots, options and arguments may not: so read from the right.
    if len(path) >= 3 and path[-2] == "init":
        layer.init.setdefault(".".join(path[:-2]), {})[path[-1]] = text
        return
    name = ".".join(path[:-1])
    if name == SERVER:
        raise ConfigError(f"--set {argument}: the server's options are flags: --{path[-1].replace('_', '-')} {text}")
    layer.put(name, path[-1], parse(deployment_options(), (f"--set {left}", "set"), path[-1], text))
