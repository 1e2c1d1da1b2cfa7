"""`jitney.testing.fixture` in a test of the author of a model: the same test with and without worker processes."""

import subprocess
import sys
from pathlib import Path

MODEL = """
import os
import jitney

@jitney.deployment
class Shout:
    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    def predict(self, texts: list[str]) -> list[str]:
        return [f"{text.upper()}{self.mark}{os.getpid()}" for text in texts]
"""
TESTS = """
import os
import jitney.testing
from shouting import Shout

fast = jitney.testing.fixture(Shout)
real = jitney.testing.fixture("shouting.py", processes=True, options={"shout.init.mark": "?"})

def test_without_processes(fast):
    assert fast[Shout]("a") == f"A!{os.getpid()}"

def test_with_processes(real):
    text, _, pid = real[Shout]("a").partition("?")
    assert text == "A" and int(pid) != os.getpid()
"""


def test_a_deployment_is_a_fixture_with_and_without_processes(tmp_path: Path) -> None:
    (tmp_path / "shouting.py").write_text(MODEL)
    (tmp_path / "test_shouting.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shouting.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
