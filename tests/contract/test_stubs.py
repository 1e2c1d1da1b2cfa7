"""The stubs of both extension modules name what the modules have, and nothing else."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jitney import _core
from jitney_bench import _generator

Names = dict[str, set[str]]


def declared(stub: Path) -> Names:
    """Return the names of a stub; of a class its members, of anything else nothing."""
    found: Names = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef):
            if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                found[node.name] = _members(node)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = set()
    return found


def _members(node: ast.ClassDef) -> set[str]:
    functions = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    values = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return {name for name in functions | values if not name.startswith("__")}


def present(module: ModuleType) -> Names:
    names: dict[str, Any] = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    return {
        name: {member for member in vars(value) if not member.startswith("__")} if isinstance(value, type) else set()
        for name, value in names.items()
    }


@pytest.mark.parametrize("module", [_core, _generator])
def test_a_stub_names_what_its_module_has(module: ModuleType) -> None:
    assert module.__file__
    stub = Path(module.__file__).parent / (module.__name__.rpartition(".")[2] + ".pyi")
    in_stub = {name: members for name, members in declared(stub).items() if not name.startswith("__")}
    assert in_stub == present(module)
