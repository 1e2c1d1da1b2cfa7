"""Write docs/reference/ from the tables that the server itself reads, and check that links in the docs lead somewhere.

`--check` writes nothing and fails if a page is not what the tables say.
"""

import re
import sys
from pathlib import Path

from jitney import _core

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
NOTE = "<!-- Written by `make docs` from the tables in crates/core. Do not edit. -->\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def outcomes() -> str:
    rows = [
        [f"`{reason}`", title, str(status), str(grpc), "yes" if may_retry else "no"]
        for reason, title, status, grpc, may_retry in _core.outcomes()
    ]
    head = ["reason", "title", "HTTP status", "gRPC code", "worth a retry"]
    words = "How a request can end. The reason is in `x-jitney-reason`, in the problem, and in the label `outcome`."
    return f"# Outcomes\n\n{NOTE}\n{words}\n\n{table(head, rows)}"


def metrics() -> str:
    rows = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text]
        for name, kind, labels, text in _core.metrics()
    ]
    words = "What `/metrics` tells. Labels come from closed sets."
    return f"# Metrics\n\n{NOTE}\n{words}\n\n{table(['name', 'kind', 'labels', 'meaning'], rows)}"


def broken_links() -> list[str]:
    problems: list[str] = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                problems.append(f"{page.relative_to(ROOT)}: {target} leads nowhere")
    return problems


def main() -> int:
    problems: list[str] = []
    for name, page in {"outcomes.md": outcomes(), "metrics.md": metrics()}.items():
        path = FOLDER / name
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
