"""Reads the layers of options above the decorator: the file, the environment and `--set`.

ConfigError names the place and the key of what is wrong.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from jitney.config.layers import SERVER, Layer, Overrides, check_plain, environment_name
from jitney.config.option import Option, parse, unknown
from jitney.config.options import deployment_options, server_options
from jitney.errors import ConfigError


def read_overrides(
    toml_path: str | None, environ: Mapping[str, str], sets: Sequence[str], short: Mapping[str, str] | None = None
) -> Overrides:
    """Read all layers above the decorator; ConfigError names the place and the key of whatever is wrong.

    `short` has, by variable in `environ`, the shorter name that the user set instead.
    """
    overrides = Overrides()
    if toml_path is not None:
        _read_file(overrides.file, toml_path)
    _read_environment(overrides.environment, environ, short or {})
    for argument in sets:
        _read_set(overrides.sets, argument)
    return overrides


def _read_file(layer: Layer, path: str) -> None:
    import tomllib  # noqa: PLC0415 - takes 0.5 MB, and most servers have no file

    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for key, value in document.items():
        if key not in ("deployment", SERVER):
            raise ConfigError(f"{path}: {_unknown_at_top(key, value)}")
    where, server = f"{path} [server]", _table_in(path, "server", document.get(SERVER, {}))
    for key, value in server.items():
        _refuse_address(where, key, server)
        _refuse_misplaced(where, key, server_options(), "[deployment.NAME]")
        layer.put(SERVER, key, parse(server_options(), (where, "file"), key, value), where)
    for name, table in _table_in(path, "deployment", document.get("deployment", {})).items():
        _read_file_deployment(layer, path, name, table)


def _read_file_deployment(layer: Layer, path: str, name: str, table: object) -> None:
    where = f"{path} [deployment.{name}]"
    options = dict(_table_in(path, f"deployment.{name}", table))
    init = _table_in(path, f"deployment.{name}.init", options.pop("init", {}))
    layer.options[name], layer.places[name] = {}, {"": where}  # an empty table names a deployment too
    for key, value in options.items():
        _refuse_address(where, key, options, " in [server]")
        _refuse_misplaced(where, key, deployment_options(), "[server]")
        layer.put(name, key, parse(deployment_options(), (where, "file"), key, value), where)
    for key, value in init.items():
        check_plain(f"{path} [deployment.{name}.init]: `{key}`", value)
        layer.put_init(name, key, value, where)


def _unknown_at_top(key: str, value: object) -> str:
    """Say that the file has no such table, and where its content goes."""
    tables = {"[deployment.NAME]": deployment_options(), "[server]": server_options()}
    table = next((table for table, options in tables.items() if key in options), None)
    if table is not None:
        return f"`{key}` is in no table; write it in {table}"
    keys = cast("dict[str, object]", value).keys() if isinstance(value, dict) else set[str]()
    if keys and keys <= {*deployment_options(), "init"}:
        return f"there is no table `{key}`; options of a deployment are in [deployment.{key}]"
    return unknown("table", key, ("deployment", SERVER))


def _refuse_misplaced(where: str, key: str, table: Mapping[str, Option], other: str) -> None:
    """Refuse an option that only the other kind of table has, and name that table."""
    if key not in table and key in {**server_options(), **deployment_options()}:
        raise ConfigError(f"{where}: `{key}` is not an option of this table; write it in {other}")


def _refuse_address(where: str, key: str, table: Mapping[str, object], place: str = "") -> None:
    """Refuse `host` and `port`, which are flags and variables, and write them as the file has them, at this place."""
    if key in ("host", "port"):
        host = str(table.get("host", "127.0.0.1"))
        address = f"tcp:{f'[{host}]' if ':' in host else host}:{table.get('port', 8000)}"
        raise ConfigError(f'{where}: there is no option `{key}`; write listen = ["{address}"]{place}')


def _table_in(path: str, key: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: `{key}` is a table, written [{key}], not {value!r}")
    return cast("dict[str, object]", value)


def _read_environment(layer: Layer, environ: Mapping[str, str], short: Mapping[str, str]) -> None:
    for variable, text in sorted(environ.items()):
        name, separator, key = variable.removeprefix("JITNEY_").rpartition("__")
        if not variable.startswith("JITNEY_") or not separator:
            continue
        if not name:
            raise ConfigError(f"{variable} names no deployment; write JITNEY_NAME__OPTION")
        is_server = name == environment_name(SERVER)
        if is_server and key in ("HOST", "PORT"):
            raise ConfigError(f"{variable}: there is no option `{key.lower()}`; write JITNEY_{key}")
        table = server_options() if is_server else deployment_options()
        if name.endswith("__INIT") and key.lower() not in table:
            raise ConfigError(
                f"{variable}: constructor arguments are given in the file, [deployment.NAME.init], "
                f"or by --set NAME.init.{key.lower()}=VALUE"
            )
        place = short.get(variable, variable)
        layer.put(name, key.lower(), parse(table, (place, "environment"), key.lower(), text), place)


def _read_set(layer: Layer, argument: str) -> None:
    left, separator, text = argument.partition("=")
    path, place = left.strip().split("."), f"--set {left}"
    if not separator or len(path) < 2 or not all(path):
        raise ConfigError(f"--set {argument}: expected NAME.option=value")
    # Names may hold dots, options and arguments may not: so read from the right.
    if len(path) >= 3 and path[-2] == "init":
        layer.put_init(".".join(path[:-2]), path[-1], text, place)
        return
    name = ".".join(path[:-1])
    if name == SERVER:
        raise ConfigError(f"--set {argument}: the server's options are flags: --{path[-1].replace('_', '-')} {text}")
    layer.put(name, path[-1], parse(deployment_options(), (place, "set"), path[-1], text), place)
