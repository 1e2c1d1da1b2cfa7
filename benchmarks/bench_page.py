"""`make bench-page`: writes report.md, report.html and the figures in the project's README from results/*.json.

The two reports are built and not committed. With `--check` nothing is written, and the exit code is 1 if README's
figures are not those of the results.
"""

import sys
from pathlib import Path

from page.markdown import page
from page.plots import report
from page.readme import readme_figures
from page.results import Sources, read

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->"


def reports(sources: Sources) -> dict[Path, str]:
    """The pages that are built and not committed."""
    return {HERE / "report.md": page(sources), HERE / "report.html": report(sources)}


def readme(sources: Sources, text: str) -> str:
    """README with the figures of these results between the two marks."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"README.md has no {BEGIN.strip()} … {END}")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return head + BEGIN + readme_figures(sources) + END + tail


def main() -> int:
    sources, text = read(HERE / "results"), README.read_text()
    expected = readme(sources, text)
    if "--check" in sys.argv:
        if text != expected:
            print("README.md does not have the figures of benchmarks/results: run `make bench-page`", file=sys.stderr)
        return int(text != expected)
    for path, content in {README: expected, **reports(sources)}.items():
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
            print(f"written: {path.relative_to(HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
