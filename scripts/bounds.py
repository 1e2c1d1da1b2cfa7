"""Print the oldest or the newest libraries that pyproject.toml allows, one a line, as requirements for pip.

`bounds.py oldest` prints exact versions. `bounds.py newest` prints the ranges; pip takes the newest version in each.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for bound in [*project["dependencies"], *project["optional-dependencies"]["pydantic"]]:
    print(re.sub(r">=([\w.]+).*", r"==\1", bound) if sys.argv[1] == "oldest" else bound)
