"""Flags that several commands share, and those that follow from the table of server options."""

import argparse
import os
from collections.abc import Mapping

from jitney.config.layers import Option, Overrides, deployment_options, flag_of, server_options
from jitney.front.settings import read_layers


def add_layers(parser: argparse.ArgumentParser) -> None:
    """Add the flags that set options of deployments, with and without the name of a deployment."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME.OPTION=VALUE",
        dest="sets",
        help="set an option of a deployment, or NAME.init.ARGUMENT=VALUE for its constructor; repeatable",
    )
    parser.add_argument("--config", metavar="FILE", help="file of options (default: jitney.toml, if it is there)")
    # One flag per option. Their values stay text: the table parses them.
    group = parser.add_argument_group(
        "options of a deployment, if there is only one; of several: --set NAME.OPTION=VALUE"
    )
    for option in deployment_options().values():
        if not option.in_code_only:
            metavar = "|".join(option.choices) or (option.unit or option.base.__name__).upper()
            metavar = {"TUPLE": "LIST", "BOOL": "true|false"}.get(metavar, metavar).replace(" ", "_")
            group.add_argument(flag_of(option.name), metavar=metavar, help=_help(option))


def given_layers(arguments: argparse.Namespace) -> Overrides:
    """Read the options of deployments: from `jitney.toml`, the environment and the flags of `add_layers`."""
    overrides = read_layers(arguments.config, os.environ, arguments.sets)
    for option in deployment_options().values():
        text = getattr(arguments, option.name, None)
        if text is not None:
            overrides.give_flag(option.name, text)
    return overrides


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add one flag per server option."""
    group = parser.add_argument_group("server options")
    for option in server_options().values():
        flag = flag_of(option.name)
        if option.base is bool:
            group.add_argument(flag, action="store_const", const=True, default=None, help=_help(option))
        elif option.base is tuple:
            group.add_argument(flag, action="append", metavar=option.name.upper(), help=f"{_help(option)}; repeatable")
        else:
            metavar = "|".join(option.choices) or (option.unit or option.base.__name__).upper()
            group.add_argument(flag, type=option.base, metavar=metavar, help=_help(option))


def given_server_options(arguments: argparse.Namespace) -> Mapping[str, object]:
    """Collect the server options that were on the command line."""
    values = {name: getattr(arguments, name) for name in server_options()}
    return {name: value for name, value in values.items() if value is not None}


def _help(option: Option) -> str:
    default = (",".join(option.default) or "none") if option.base is tuple else option.default
    has_default = option.base is not bool and "default: " not in option.meaning
    known = f" (default: {'none' if default is None else default})" if has_default else ""
    return f"{option.meaning}{known}".replace("%", "%%")
