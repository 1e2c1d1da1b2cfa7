"""`jitney`: finds the command, turns errors into one clear line and an exit code."""

import argparse
import difflib
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence

from jitney.cli import check, models, serve
from jitney.errors import JitneyError

COMMANDS = {"serve": serve, "check": check, "models": models}
USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsers = _parsers()
    parser = parsers[""]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        return _refuse(f"no command {arguments[0]!r}", arguments[0], COMMANDS)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [flag for flag in _flags(parsers[parsed.command or ""])]
        return _refuse(f"no option {unknown[0]!r} in {_name(parsed.command)}", unknown[0].split("=")[0], known)
    if parsed.command is None:
        parser.print_help()
        return USAGE_ERROR
    try:
        return COMMANDS[parsed.command].run(parsed)
    except JitneyError as error:
        print(f"jitney: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `jitney models | head`
        sys.stderr.close()
        return 1


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


def _name(command: str | None) -> str:
    return f"jitney {command}" if command else "jitney"


def _refuse(message: str, given: str, known: Iterable[str]) -> int:
    near = difflib.get_close_matches(given, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see jitney --help"
    print(f"jitney: {message}{hint}", file=sys.stderr)
    return USAGE_ERROR
