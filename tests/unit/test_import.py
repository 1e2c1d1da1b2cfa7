"""Each process loads only what it needs. `import jitney` loads errors and the context; a front loads no worker."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jitney
from slow_modules import SLOW_MODULES

SLOW = {"PIL", "asyncio", "importlib.metadata", "inspect", "jitney._core", "msgspec", "numpy", "pydantic"}
PUBLIC = [*jitney.__all__]


PACKAGES_OF_A_FRONT = {"cli", "config", "context", "deployments", "errors", "extension", "front", "models"}
SERVE = """
import sys, types
from jitney.cli.main import main
core = sys.modules["jitney._core"] = types.ModuleType("jitney._core")
core.serve = lambda settings, reread: 0
assert main(["serve", "noop.py", "--port", "0", "--max-batch-size", "8"]) == 0
"""
NOOP = "import jitney\n@jitney.deployment\ndef noop(texts: list[str]) -> list[str]:\n    return texts\n"


def loaded_by(code: str, folder: Path | None = None) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return set(ran.stdout.split())


def test_importing_jitney_loads_no_package_that_is_slow() -> None:
    loaded = loaded_by("import jitney") - loaded_by("import dataclasses")
    assert not SLOW & loaded
    assert {name for name in loaded if name.startswith("jitney.")} == {
        "jitney.context",
        "jitney.errors",
        "jitney.extension",
    }


def test_neither_a_deployment_nor_an_engine_needs_numpy() -> None:
    loaded = loaded_by("import jitney; jitney.deployment, jitney.run, jitney.connect")
    assert "numpy" not in loaded


def test_a_front_loads_nothing_of_other_commands_and_nothing_of_workers(tmp_path: Path) -> None:
    (tmp_path / "noop.py").write_text(NOOP)
    loaded = loaded_by(SERVE, tmp_path)
    own = {name for name in loaded if name.startswith("jitney.")}
    assert not SLOW_MODULES & loaded
    assert {name.split(".")[1] for name in own} - {"_core"} == PACKAGES_OF_A_FRONT
    assert {name for name in own if name.startswith("jitney.deployments.")} == {"jitney.deployments.fresh"}
    assert not {"jitney.cli.check", "jitney.cli.bench", "jitney_bench"} & loaded


def test_each_public_name_is_there_and_is_listed() -> None:
    assert [name for name in PUBLIC if not hasattr(jitney, name)] == []
    assert set(PUBLIC) <= set(dir(jitney))
    assert len(set(PUBLIC)) == len(PUBLIC)


def test_the_version_is_that_of_the_package() -> None:
    assert jitney.__version__ == metadata.version("jitney")
