"""Write docs/reference/ from the tables that the server itself reads, and check that links in the docs lead somewhere.

`--check` writes nothing and fails if a page is not what the tables say.
"""

import argparse
import re
import sys
from pathlib import Path

from jitney import _core
from jitney.cli.main import COMMANDS, parsers_of
from jitney.config.layers import Option, deployment_options, server_options

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
NOTE = "<!-- Written by `make docs` from the tables in crates/core. Do not edit. -->\n"
PARSER_NOTE = "<!-- Written by `make docs` from the parser in python/jitney/cli. Do not edit. -->\n"
OPTIONS_NOTE = "<!-- Written by `make docs` from the tables in python/jitney/config/options.py. Do not edit. -->\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def outcomes() -> str:
    rows = [
        [f"`{reason}`", title, str(status), str(grpc), "" if may_retry else "`false`", blame]
        for reason, title, status, grpc, may_retry, blame in _core.outcomes()
    ]
    head = ["reason", "title", "HTTP status", "gRPC code", "`x-should-retry`", "whose doing"]
    words = (
        "Every way in which a request can end. The reason is in the header `x-jitney-reason`, in the problem, and in\n"
        "the label `outcome` of metrics. Where `x-should-retry` is `false`, the answer has that header: clients\n"
        "often retry this status, but a retry would fail again. The last column says whose doing it is: the rules for\n"
        "alerts count those of `model` and `server` as failures, but not `draining` and `scaled_to_zero`, which an\n"
        "operator asked for; and those of `load` as refusals."
    )
    return f"# Outcomes\n\n{NOTE}\n{words}\n\n{table(head, rows)}"


def metrics() -> str:
    rows = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text]
        for name, kind, labels, text in _core.metrics()
    ]
    words = (
        "The metrics of `/metrics`. Labels come from closed sets. `jitney_requests_total` counts requests. It does\n"
        "not count items that fail inside an answered `/batch` request: `x-jitney-failed` of that answer has their\n"
        "number. All protocols count in the same way: each request that asks for items is counted once, also one\n"
        "that is refused for its key or its size, or whose client leaves while it sends. If its deployment is not\n"
        'known yet, or is not served, its label is `deployment="(unknown)"`. A program that is refused when it dials\n'
        "has sent no request. Each `reason` of `jitney_batches_total` is [explained](config.md#why-a-batch-was-closed)."
    )
    return f"# Metrics\n\n{NOTE}\n{words}\n\n{table(['name', 'kind', 'labels', 'meaning'], rows)}"


MOST_TO_NAME = 1_000_000


def bound(option: Option) -> str:
    """Say what an option's value may be; the largest number of its type is not mentioned."""
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    limits = {"more than": option.above, "at least": option.minimum}
    # A limit of a year, or the largest number of a type, is not worth a word.
    limits |= {"at most": option.maximum if option.maximum is not None and option.maximum <= MOST_TO_NAME else None}
    words = [f"{word} {limit:g}" for word, limit in limits.items() if limit is not None]
    if words:
        return " and ".join(words)
    return {bool: "`true`, `false`", tuple: "a list of strings"}.get(option.base, "")


def default(option: Option) -> str:
    if option.default is None:
        return "none"
    if isinstance(option.default, tuple):
        return ", ".join(f"`{part}`" for part in option.default) or "empty"
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    text = f"`{option.default:g}`" if isinstance(option.default, float) else f"`{option.default}`"
    if option.unit == "bytes" and option.default % 2**20 == 0:
        return f"{text} ({option.default // 2**20} MiB)"
    return text


def option_rows(options: dict[str, Option]) -> str:
    rows = [
        [f"`{option.name}`", default(option), option.unit or "", bound(option), option.meaning]
        for option in options.values()
    ]
    return table(["option", "default", "unit", "values", "meaning"], rows)


def options() -> str:
    code_only = ", ".join(f"`{option.name}`" for option in deployment_options().values() if option.in_code_only)
    return f"""# Options

{OPTIONS_NOTE}
Every option. An unknown name or a value out of range is an error that names the layer it came from.

## Options of a deployment

Layers, weakest first: the default; the decorator `@jitney.deployment(…)`; `[deployment.NAME]` in `jitney.toml`; the
environment as `JITNEY_NAME__OPTION`; the command line as `--set NAME.option=value`, or as `--option value` if one
deployment is served. These are allowed only in the decorator: {code_only}.

The other arguments of the decorator are part of the code, and no layer can change them: `name` and `route` (the paths,
[how](../how-to/models/deployment.md)), `examples` ([warm-up](../how-to/models/warm-up.md)), `group_by` and `cost`
([group keys](../how-to/batches/group-keys.md)), `task` ([protocols](../how-to/call/protocols.md)). The format of an
output image is set where it is made: `jitney.Image(…, format="JPEG")` ([images](../how-to/models/images.md)).

{option_rows(deployment_options())}
## Options of the server

Layers, weakest first: the default; `[server]` in `jitney.toml`; the environment as `JITNEY_SERVER__OPTION` or
`JITNEY_OPTION`; a flag of the same name with dashes (`--log-level debug`). `--host` and `--port` are short for one
`--listen tcp:HOST:PORT`.

{option_rows(server_options())}"""


def flags(parser: argparse.ArgumentParser) -> str:
    """Return a table of the arguments of a command for each of its groups."""
    parts: list[str] = []
    for group in parser._action_groups:  # pyright: ignore[reportPrivateUsage] - argparse has no other way
        rows = [row(action, parser.prog) for action in group._group_actions]  # pyright: ignore[reportPrivateUsage]
        if rows:
            title = (group.title or "").removesuffix(":")
            parts.append(f"**{title[:1].upper()}{title[1:]}**\n\n{table(['argument', 'meaning'], rows)}")
    return "\n".join(parts)


def row(action: argparse.Action, program: str) -> list[str]:
    value = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or ()))
    value = value or ("" if action.nargs == 0 else action.dest.upper())
    names = [f"{name} {value}".rstrip() for name in action.option_strings] or [value]
    text = (action.help or "") % {**vars(action), "prog": program}
    return [", ".join(f"`{name}`" for name in names).replace("|", "\\|"), text.replace("|", "\\|").replace("<", "&lt;")]


def command_line() -> str:
    parts = [f"| [`jitney {name}`](#jitney-{name}) | {summary} |\n" for name, (_, summary) in COMMANDS.items()]
    parts = ["# Command line\n\n", PARSER_NOTE, "\n| command | what it does |\n| --- | --- |\n", *parts]
    parts.append(
        "\n`jitney --version` says which version this is, `jitney COMMAND --help` lists the flags of a command.\n"
    )
    for name in COMMANDS:
        parser = parsers_of([name])[name]
        description = (parser.description or "").strip()
        parts.append(f"\n## jitney {name}\n\n{description}\n\n{flags(parser)}")
    return "".join(parts)


def internals() -> str:
    """Return the page about the internals, with a row for each design note."""
    page = ROOT / "docs/design/index.md"
    rows: list[list[str]] = []
    for note in sorted(page.parent.glob("0*.md")):
        number, title = re.findall(r"# (\d+)[ ·]+(.+)", note.read_text())[0]
        rows.append([f"[{number}]({note.name})", title])
    begin, end = "<!-- notes -->\n", "<!-- /notes -->"
    before, rest = page.read_text().split(begin)
    return f"{before}{begin}{table(['note', 'about'], rows)}{end}{rest.split(end)[1]}"


def broken_links() -> list[str]:
    problems: list[str] = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s\"]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                problems.append(f"{page.relative_to(ROOT)}: {target} leads nowhere")
    return problems


def main() -> int:
    problems: list[str] = []
    pages = {"outcomes.md": outcomes(), "metrics.md": metrics(), "options.md": options()}
    pages |= {"command-line.md": command_line(), "../design/index.md": internals()}
    for name, page in pages.items():
        path = (FOLDER / name).resolve()
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page)
        elif not path.exists() or path.read_text() != page:
            problems.append(f"{path.relative_to(ROOT)} is not what the tables say: run `make docs`")
    problems += broken_links()
    print("\n".join(problems) or "the reference pages are what the tables say, and all links lead somewhere")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
