"""Flags that several commands share, and those that follow from the table of server options."""

import argparse
from collections.abc import Mapping

from jitney.config.layers import Option, server_options


def add_layers(parser: argparse.ArgumentParser) -> None:
    """Add the flags that set options of deployments."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME.OPTION=VALUE",
        dest="sets",
        help="set an option of a deployment, or NAME.init.ARGUMENT=VALUE for its constructor; repeatable",
    )
    parser.add_argument("--config", metavar="FILE", help="file of options (default: jitney.toml, if it is there)")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add one flag per server option."""
    group = parser.add_argument_group("server options")
    for option in server_options().values():
        flag = f"--{option.name.replace('_', '-')}"
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
    known = "" if option.base is bool else f" (default: {default})"
    return f"{option.meaning}{known}".replace("%", "%%")
