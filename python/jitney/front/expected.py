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


def expected_replicas(target: str, overrides: Overrides) -> int:
    """Return the replicas of all deployments of a target, as far as its file and the options say; at least 1."""
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
        counts = [int(overrides.flags.get("replicas", 1))]  # an option of the only deployment, wherever its code is
    return max(1, sum(counts))


def _declared(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, Mapping[str, object]]]:
    """Return name and replicas of a deployment, as its decorator says them; nothing if it has no such decorator."""
    for decorator in node.decorator_list:
        called, keywords = (decorator.func, decorator.keywords) if isinstance(decorator, ast.Call) else (decorator, [])
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        if name == _DECORATOR:
            known = {word.arg: word.value.value for word in keywords if isinstance(word.value, ast.Constant)}
            declared = {"replicas": known["replicas"]} if "replicas" in known else {}
            return [(str(known.get("name") or snake_case(node.name)), declared)]
    return []


def _replicas(name: str, declared: Mapping[str, object], overrides: Overrides) -> int:
    try:
        return resolve(name, declared, overrides).options.replicas
    except JitneyError:
        return 1  # a worker says what is wrong with them
