"""How many replicas a target will have, before any worker has imported it: its file is read and not run.

So many workers import the target at the same time. The manifest has the last word: workers that are too many end, and
missing ones are started then.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jitney.config.layers import Overrides, resolve
from jitney.config.names import snake_case
from jitney.errors import JitneyError

_DECORATOR: Final = "deployment"
_COUNTS: Final = ("replicas", "min_replicas", "max_replicas")


def expected_replicas(target: str, overrides: Overrides) -> tuple[int, int]:
    """Return the first and the most replicas of all deployments of a target, as far as its file and the options say."""
    place, _, wanted = target.partition(":")
    path = Path(place) if place.endswith(".py") else Path(*place.split(".")).with_suffix(".py")
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        tree = ast.Module([], [])  # a worker says what is wrong with it
    counts = [
        _replicas(name, declared, overrides)
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        for name, declared in _declared(node)
        if wanted in ("", name, node.name)
    ]
    if not counts:
        counts = [_replicas("", {}, overrides)]  # an option of the only deployment, wherever its code is
    first, most = (max(1, sum(column)) for column in zip(*counts, strict=True))
    return first, most


def _declared(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, Mapping[str, object]]]:
    """Return name and replicas of a deployment, as its decorator says them; nothing if it has no such decorator."""
    for decorator in node.decorator_list:
        called, keywords = (decorator.func, decorator.keywords) if isinstance(decorator, ast.Call) else (decorator, [])
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        if name == _DECORATOR:
            known = {word.arg: word.value.value for word in keywords if isinstance(word.value, ast.Constant)}
            declared = {option: known[option] for option in _COUNTS if option in known}
            return [(str(known.get("name") or snake_case(node.name)), declared)]
    return []


def _replicas(name: str, declared: Mapping[str, object], overrides: Overrides) -> tuple[int, int]:
    try:
        options = resolve(name, declared, overrides).options
    except JitneyError:
        return 1, 1  # a worker says what is wrong with them
    return options.first_replicas(), options.replica_bounds()[1]
