"""The page as Markdown: its parts, one after the other."""

from page.compare import lost, rows_of
from page.peers import headline, peers
from page.results import Sources
from page.stories import stories
from page.targets import score, targets


def page(sources: Sources) -> str:
    """benchmarks/README.md."""
    lines = [
        "# How fast it is, beside what",
        "",
        "<!-- Made by `make bench-page` from results/*.json; do not edit. -->",
        "",
    ]
    if sources.peers:
        document = sources.peers.document
        rows = rows_of(document)
        lines += [*headline(document, rows), ""]
        if lost_rows := lost(rows):
            why = "[the design notes](../docs/design/0012-proof.md#lost-rows-and-their-reasons)"
            lines += [f"{len(lost_rows)} figures are lost; each is marked below and explained in {why}.", ""]
    lines += [
        *score(sources),
        "The machines are shared and the generator runs on the same cores as the servers, so read ratios within one "
        "table and nothing across tables. The same with plots: [report.html](report.html). How it is made fair, what "
        "is simulated, and why rows are lost: [0012](../docs/design/0012-proof.md). Make it again: `make bench`, "
        "`make bench-peers`, `make bench-stories`, then `make bench-page`.",
        "",
        *peers(sources.peers),
        *stories(sources.stories),
        *targets(sources),
    ]
    return "\n".join(lines).rstrip() + "\n"
