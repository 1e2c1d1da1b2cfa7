"""`jitney`: finds the command, turns errors into one clear line and an exit code."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import jitney
from jitney.config.layers import deployment_options, flag_of
from jitney.config.suggestion import closest
from jitney.errors import ConfigError, JitneyError

COMMANDS: Final = {
    "serve": ("jitney.cli.serve", "serve models over HTTP"),
    "worker": ("jitney.cli.machines.worker", "run workers on this machine for a server on another one"),
    "check": ("jitney.cli.check.command", "load a model and run its examples, without a server"),
    "bench": ("jitney.cli.bench", "load a model with requests and report how fast it answers"),
    "models": ("jitney.cli.models", "list the ready-made models"),
    "secret": ("jitney.cli.machines.secret", "make the secret file by which machines know each other"),
}
"""The module and the help of each command. A module is imported only for its command: a front keeps what it imports."""
USAGE_ERROR = 2
_REPLICAS = {"workers", "worker", "processes", "instances"}
"""What other servers call replicas."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parsed = _parse(arguments)
        return _module(parsed.command).run(parsed)
    except JitneyError as error:
        print(f"jitney: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `jitney models | head`
        sys.stderr.close()
        return 1


def entry() -> NoReturn:
    """Be the program `jitney`."""
    code = main()
    if sys.argv[1:2] == ["check"]:
        from jitney.worker.process import end_process  # noqa: PLC0415 - `jitney serve` has no use for it

        end_process(code)  # here the model was loaded, with whatever threads it has started
    sys.exit(code)


def _parse(arguments: list[str]) -> argparse.Namespace:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise ConfigError(f"no command {arguments[0]!r}{_hint(arguments[0], COMMANDS)}")
    if arguments[:1] == ["bench"]:
        _module("bench").check_installed()
    parsers = parsers_of(arguments)
    parsed, rest = parsers[""].parse_known_args(arguments)
    if rest:
        raise ConfigError(_unknown_option(parsers[parsed.command or ""], rest[0]))
    if parsed.command is None:
        parsers[""].print_help()
        raise SystemExit(USAGE_ERROR)
    return parsed


def _module(command: str) -> Any:
    return import_module(COMMANDS[command][0])


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def _unknown_option(parser: argparse.ArgumentParser, given: str) -> str:
    if not given.startswith("-"):
        if parser.prog.endswith("serve"):
            return (
                f"{given!r} stands apart from the other targets: name all of them side by side, before or after options"
            )
        return f"{parser.prog} takes no further argument, and {given!r} is one; see {parser.prog} --help"
    flag = given.partition("=")[0]
    option = flag.removeprefix("--").replace("-", "_")
    option = "replicas" if option in _REPLICAS else option
    said = f"{parser.prog} has no option {given!r}"
    flags = list(_flags(parser))
    if option in deployment_options() and flag_of(option) in flags:
        return f"{said}; did you mean '{flag_of(option)}'?"
    return said + _hint(flag, flags, parser.prog)


class Version(argparse.Action):
    """Prints the version. It is read only here: `importlib.metadata` takes 2 MB and longer than the rest."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None
    ) -> NoReturn:
        """Print it, and end."""
        del namespace, values, option_string
        print(f"jitney {jitney.__version__}")
        parser.exit()


def parsers_of(arguments: Sequence[str]) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command by its name, and under "" that of the program.

    Only the parser of the command in `arguments` has the options of its command.
    """
    top = Parser(
        prog="jitney",
        description="Serves any Python model to many clients at once and keeps the accelerator full.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=Version)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers: dict[str, argparse.ArgumentParser] = {"": top}
    for name, (_, summary) in COMMANDS.items():
        parser = parsers[name] = commands.add_parser(
            name, help=summary, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in arguments:
            command = _module(name)
            parser.description = command.__doc__
            command.add_arguments(parser)
    return parsers


def _flags(parser: argparse.ArgumentParser) -> Iterable[str]:
    for line in parser.format_help().replace(",", " ").split():
        if line.startswith("--"):
            yield line.rstrip("]")


def _hint(given: str, known: Iterable[str], program: str = "jitney") -> str:
    near = closest(given, known)
    return f"; did you mean {near!r}?" if near else f"; see {program} --help"
