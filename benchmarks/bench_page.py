"""`make bench-page`: writes README.md, report.html and the figures of the project's README from results/*.json.

With `--check` it writes nothing and says what would change.
"""

import sys
from pathlib import Path

from page.markdown import page
from page.plots import report
from page.readme import readme_figures
from page.results import read

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->"


def rendered(results: Path = HERE / "results") -> dict[Path, str]:
    """Every file that is made from the results, as it must be."""
    sources = read(results)
    readme = HERE.parent / "README.md"
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"README.md has no {BEGIN.strip()} … {END}")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return {
        HERE / "README.md": page(sources),
        HERE / "report.html": report(sources),
        readme: head + BEGIN + readme_figures(sources) + END + tail,
    }


def main() -> int:
    changed = [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]
    for path in changed:
        name = path.relative_to(HERE.parent)
        if "--check" in sys.argv:
            print(f"{name} is not what results/*.json say: make bench-page", file=sys.stderr)
        else:
            path.write_text(rendered()[path])
            print(f"written: {name}")
    return int("--check" in sys.argv and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
