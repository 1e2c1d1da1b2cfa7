"""Programs of the system that these tests use, and the files in `deploy/`."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
IN_CI = {"promtool"}
"""Programs that `make ci` installs."""


def need(*programs: str) -> None:
    """Skip a test whose program is not installed. It fails where the project has to install it."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("JITNEY_TEST_DEPLOY"):
        pytest.fail(f"not installed: {', '.join(missing)}; `make deploy-tools` installs it")
    if os.environ.get("JITNEY_REQUIRE_TOOLS") and set(missing) & IN_CI:
        pytest.fail(f"not installed: {', '.join(missing)}; `make ci` installs it")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def run(*command: object, check: bool = True, timeout_s: float = 60, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it wrote is in the error of one that fails."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s, **more)
    assert ran.returncode == 0 or not check, (
        f"{' '.join(words)}: {ran.returncode}\n{ran.stdout[-5000:]}{ran.stderr[-5000:]}"
    )
    return ran


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return [document for document in yaml.safe_load_all(text) if document is not None]
