"""Print the oldest msgspec and pydantic that pyproject.toml allows, one a line, as requirements of these versions."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
bounds = [*project["dependencies"], *project["optional-dependencies"]["pydantic"]]
for bound in bounds:
    name, _, versions = bound.partition(">=")
    if name in ("msgspec", "pydantic"):
        print(f"{name}=={versions.partition(',')[0]}")
