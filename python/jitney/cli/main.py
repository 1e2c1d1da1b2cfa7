"""`jitney`: finds the command, turns errors into one clear line and an exit code."""

import argparse
import difflib
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence

from jitney.cli import check, models, serve
from jitney.errors import ConfigError, JitneyError

COMMANDS = {"serve": serve, "check": check, "models": models}
USAGE_ERROR = 2


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


def _parse(arguments: list[str]) -> argparse.Namespace:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise ConfigError(f"no command {arguments[0]!r}{_hint(arguments[0], COMMANDS)}")
    parsers = _parsers()
    parsed, rest = parsers[""].parse_known_args(arguments)
    if rest:
        flags = _flags(parsers[parsed.command or ""])
        name = f"jitney {parsed.command}" if parsed.command else "jitney"
        raise ConfigError(f"{name} has no option {rest[0]!r}{_hint(rest[0].split('=')[0], flags)}")
    if parsed.command is None:
        parsers[""].print_help()
        raise SystemExit(USAGE_ERROR)
    return parsed


def _parsers() -> dict[str, argparse.ArgumentParser]:
    top = argparse.ArgumentParser(
        prog="jitney",
        description="Serves any Python model to many clients at once and keeps the accelerator full.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"jitney {_version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {"": top}
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


def _version() -> str:
    try:
        return importlib.metadata.version("jitney")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _flags(parser: argparse.ArgumentParser) -> Iterable[str]:
    for line in parser.format_help().replace(",", " ").split():
        if line.startswith("--"):
            yield line.rstrip("]")


def _hint(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "; see jitney --help"
