"""The page as Markdown: its parts, one after the other."""

from page.compare import lost, rows_of
from page.peers import headline, peers, streams
from page.results import Sources
from page.stories import stories
from page.targets import scale, score, targets


def page(sources: Sources) -> str:
    """benchmarks/report.md."""
    lines = [
        "# Benchmark report",
        "",
        "<!-- Built by `make bench-page` from results/*.json; not committed. -->",
        "",
    ]
    if sources.peers:
        document = sources.peers.document
        rows = rows_of(document)
        lines += [*headline(document, rows), ""]
        if lost_rows := lost(rows):
            why = "[the design notes](../docs/design/0012-benchmarks.md#lost-rows-and-their-reasons)"
            lines += [f"jitney loses {len(lost_rows)} comparisons. Each is marked below and explained in {why}.", ""]
    lines += [
        *score(sources),
        "Other programs use the same machines, and the load generator runs on the same cores as the servers. Compare "
        "ratios within one table, and nothing across tables. [report.html](report.html) has the same figures as plots. "
        "[0012](../docs/design/0012-benchmarks.md) explains how the comparison is kept fair and what is simulated. To "
        "measure again, run `make bench`, `make bench-peers`, `make bench-stories` and `make bench-scale`, then "
        "`make bench-page`.",
        "",
        *peers(sources.peers),
        *streams(sources.streams),
        *stories(sources.stories),
        *targets(sources),
        *scale(sources),
    ]
    return "\n".join(lines).rstrip() + "\n"
