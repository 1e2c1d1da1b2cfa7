"""docs/operations/deployment.md names files, options and tasks that exist."""

import re

from jitney.config.layers import deployment_options, server_options
from tools import ROOT

PAGE = (ROOT / "docs/operations/deployment.md").read_text()


def test_files_that_it_names_are_there() -> None:
    named = re.findall(r"(?<![\w/])((?:deploy|examples)/[\w./@-]*\w)", PAGE)
    assert len(set(named)) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_options_that_it_names_are_options() -> None:
    variables = {name.lower() for name in re.findall(r"JITNEY_([A-Z_]+)", PAGE)}
    known = deployment_options().keys() | server_options().keys() | {"api_keys", "option", "host", "port"}
    assert variables and variables <= known
    quoted = {
        name for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE) if name.endswith(("_s", "_bytes", "_replicas"))
    }
    assert quoted and quoted <= known | {"jitney_wanted_replicas"}


def test_tasks_that_it_names_are_in_the_makefile() -> None:
    tasks = set(re.findall(r"`make ([a-z-]+)`", PAGE))
    assert tasks and [task for task in tasks if f"\n{task}: " not in (ROOT / "Makefile").read_text()] == []


def test_metrics_that_it_names_are_metrics() -> None:
    named = set(re.findall(r"jitney_[a-z_]+", PAGE))
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    assert named and [name for name in named if f"`{name}`" not in reference] == []
