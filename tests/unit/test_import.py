"""`import jitney` is cheap: it loads errors and the context; everything else is loaded at its first use."""

import subprocess
import sys
from importlib import metadata

import jitney

SLOW = {"asyncio", "importlib.metadata", "inspect", "jitney._core", "msgspec", "numpy", "pydantic"}
PUBLIC = [*jitney.__all__]


def loaded_by(code: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
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


def test_each_public_name_is_there_and_is_listed() -> None:
    assert [name for name in PUBLIC if not hasattr(jitney, name)] == []
    assert set(PUBLIC) <= set(dir(jitney))
    assert sorted(PUBLIC) == PUBLIC


def test_the_version_is_that_of_the_package() -> None:
    assert jitney.__version__ == metadata.version("jitney")
