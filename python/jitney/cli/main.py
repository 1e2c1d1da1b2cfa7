"""`jitney`: finds the command, turns errors into one clear line and an exit code."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

import jitney
from jitney.cli import bench, models, serve
from jitney.cli.check import command as check
from jitney.config.layers import deployment_options, flag_of
from jitney.errors import ConfigError, JitneyError

COMMANDS = {"serve": serve, "check": check, "bench": bench, "models": models}
USAGE_ERROR = 2
_REPLICAS = {"workers", "worker", "processes", "instances"}
"""What other servers call replicas."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parsed = _parse(arguments)
        return COMMANDS[parsed.command].run(parsed)
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
        bench.check_installed()
    parsers = _parsers()
    parsed, rest = parsers[""].parse_known_args(arguments)
    if rest:
        raise ConfigError(_unknown_option(parsers[parsed.command or ""], rest[0]))
    if parsed.command is None:
        parsers[""].print_help()
        raise SystemExit(USAGE_ERROR)
    return parsed


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


def _parsers() -> dict[str, argparse.ArgumentParser]:
    top = Parser(
        prog="jitney",
        description="Serves any Python model to many clients at once and keeps the accelerator full.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"jitney {jitney.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers: dict[str, argparse.ArgumentParser] = {"": top}
    for name, command in COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=command.HELP,
            description=command.__doc__,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        parsers[name] = parser
    return parsers


def _flags(parser: argparse.ArgumentParser) -> Iterable[str]:
    for line in parser.format_help().replace(",", " ").split():
        if line.startswith("--"):
            yield line.rstrip("]")


def _hint(given: str, known: Iterable[str], program: str = "jitney") -> str:
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; see {program} --help"
