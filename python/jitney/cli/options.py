"""Flags that several commands share, and those that follow from the table of server options."""

import argparse
from collections.abc import Mapping

from jitney.config.layers import Option, deployment_options, flag_of, server_options


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


def add_deployment_options(parser: argparse.ArgumentParser) -> None:
    """Add one flag per option of a deployment. Their values stay text: the table parses them."""
    group = parser.add_argument_group("options of a deployment, if one is served; of several: --set NAME.OPTION=VALUE")
    for option in deployment_options().values():
        if not option.in_code_only:
            metavar = "|".join(option.choices) or (option.unit or option.base.__name__).upper()
            metavar = {"TUPLE": "LIST", "BOOL": "true|false"}.get(metavar, metavar).replace(" ", "_")
            group.add_argument(flag_of(option.name), metavar=metavar, help=_help(option))


def given_deployment_options(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Collect the options of a deployment that were on the command line."""
    return {
        option.name: text
        for option in deployment_options().values()
        if (text := getattr(arguments, option.name, None)) is not None
    }


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
