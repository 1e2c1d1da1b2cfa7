"""How far the code has moved on since a run: figures of an old batch policy say little about the current one."""

import subprocess
from functools import cache
from pathlib import Path

from page.results import Document

ROOT = Path(__file__).resolve().parents[2]
POLICY = "crates/core/src"


@cache
def commits_since(commit: str, root: Path = ROOT) -> int | None:
    """The number of commits after this one that changed the scheduler; None where git does not know it."""
    command = ["git", "rev-list", "--count", f"{commit.removesuffix('-dirty')}..HEAD", "--", POLICY]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return int(done.stdout) if done.returncode == 0 else None


def age(document: Document, root: Path = ROOT) -> str:
    """Say by how many commits the scheduler is newer than a run; empty if it is not."""
    commit = document["versions"].get("commit")
    count = commits_since(commit, root) if commit else None
    if count is None:
        return ", age unknown" if commit else ""
    return f", {POLICY} has {count} newer commit{'s' if count > 1 else ''}" if count else ""
