"""Install the wheels in `dist/` as users do, in clean environments, and use them; print how long each step takes.

For each version of Python and for pip and uv: install, `jitney --version`, serve a model and ask it, the extra `bench`
and one small run, the extra `embedding` and one embedding. A version of Python that is not found is skipped, and the
last line says so. Only the standard library is used: a container needs nothing but Python.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ["3.11", "3.12", "3.13", "3.14", "3.14t"]
STEP_S = 600.0
MODEL = """\
import jitney


@jitney.deployment(max_batch_size=8, examples=["a"])
class Shout:
    def predict(self, texts: list[str]) -> list[str]:
        return [text.upper() for text in texts]
"""


class Failure(Exception):
    """A step did not do what a user expects."""


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Run a command and return its output."""
    # What is installed is tried, and not the sources in a folder that a variable names.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=STEP_S
    )
    if ran.returncode:
        raise Failure(f"{' '.join(map(str, command))} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
    return ran.stdout


def interpreter(version: str) -> str | None:
    """Return a Python of this version: from PATH, from pyenv, or from uv, which may download it."""
    folders = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}*/bin"))
    for folder in [None, *map(str, folders)]:
        if (found := shutil.which(f"python{version}", path=folder)) and works(found):
            return found
    if shutil.which("uv") is None:
        return None
    find = ["uv", "python", "find", "--no-project", version]
    if subprocess.run(find, capture_output=True, check=False).returncode:
        subprocess.run(["uv", "python", "install", "--quiet", version], capture_output=True, check=False)
    ran = subprocess.run(find, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def works(python: str) -> bool:
    """Whether an interpreter starts and can make environments; a placeholder of pyenv does not."""
    return subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0


class Environment:
    """A clean virtual environment, and the installer that fills it."""

    def __init__(self, folder: Path, python: str, installer: str, dist: Path) -> None:
        self.bin = folder / "bin"
        self._installer = installer
        self._dist = dist
        run(python, "-m", "venv", *(["--without-pip"] if installer == "uv" else []), folder)

    def install(self, *requirements: str) -> None:
        """Install requirements; jitney is taken from `dist/`."""
        begin = ["uv", "pip", "install", "--python", self.bin / "python"]
        if self._installer == "pip":
            begin = [self.bin / "python", "-m", "pip", "install"]
        run(*begin, "--quiet", "--find-links", self._dist, *requirements)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def served(environment: Environment, *arguments: str, folder: Path) -> Iterator[str]:
    """Serve a model for the length of the block; yield its address."""
    port = free_port()
    command = [environment.bin / "jitney", "serve", *arguments, "--port", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(STEP_S)
    if server.returncode:
        raise Failure(f"the server ended with {server.returncode}: {(folder / 'log').read_text()[-2000:]}")


def ask(address: str, path: str, body: object) -> object:
    """Post a document; try again until the server has its model."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), headers)
    until = time.monotonic() + STEP_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            refusal = json.load(error)
            expect(refusal.get("reason") == "loading", f"the server answered {refusal}")
            problem: object = refusal
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            problem = error
        expect(time.monotonic() < until, f"no answer in {STEP_S:.0f} s: {problem}")
        time.sleep(0.05)


def expect(condition: bool, problem: str) -> None:
    """Fail with a problem where a condition does not hold."""
    if not condition:
        raise Failure(problem)


def try_one(environment: Environment, folder: Path, version: str, extras: list[str]) -> float:
    """Do what a new user does; return the seconds from the installation to the first answer."""
    started = time.monotonic()
    environment.install(f"jitney=={version}")
    printed = run(environment.bin / "jitney", "--version").split()
    expect(version in printed, f"`jitney --version` printed {printed}")
    (folder / "shout.py").write_text(MODEL)
    with served(environment, "shout.py", folder=folder) as address:
        answer = ask(address, "/shout", "a")
        first_answer_s = time.monotonic() - started
        expect(answer == "A", f"the model answered {answer!r}")
        if "bench" in extras:
            environment.install(f"jitney[bench]=={version}")
            load = ["--duration", "1", "--warmup", "0"]
            report = run(environment.bin / "jitney", "bench", f"{address}/shout", *load, folder=folder)
            expect("p99" in report, f"`jitney bench` printed {report}")
    if "embedding" in extras:
        environment.install(f"jitney[embedding]=={version}")
        with served(environment, "minilm", folder=folder) as address:
            vector = ask(address, "/minilm", "How big is London?")
            expect(isinstance(vector, list) and len(vector) == 384, f"an embedding is {str(vector)[:200]}")
    return first_answer_s


def outcome(python: str, installer: str, chosen: argparse.Namespace, version: str) -> tuple[bool, str]:
    """Try one installer with one interpreter in an empty folder; return whether all works, and a line about it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jitney-wheel-") as name:
        try:
            environment = Environment(Path(name) / "env", python, installer, chosen.dist.resolve())
            answered_s = try_one(environment, Path(name), version, chosen.extras.split(","))
            expect(answered_s <= chosen.limit_s, f"first answer after {answered_s:.0f} s, limit {chosen.limit_s:.0f} s")
        except Failure as failure:
            return False, str(failure)
    whole_s = time.monotonic() - started
    return True, f"first answer {answered_s:.1f} s after the installation began; {whole_s:.0f} s with {chosen.extras}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--installers", default="pip,uv")
    parser.add_argument("--extras", default="bench,embedding")
    parser.add_argument(
        "--limit-s", type=float, default=60.0, help="most seconds from `pip install` to the first answer (default: 60)"
    )
    parser.add_argument("--all", action="store_true", help="fail if a version of Python is not found")
    return parser.parse_args()


def main() -> int:
    """Try all versions with all installers."""
    chosen = arguments()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    installers = [name for name in chosen.installers.split(",") if name == "pip" or shutil.which(name)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for python_version in chosen.versions.split(","):
        python = interpreter(python_version)
        if python is None:
            counts["skipped"] += len(installers)
            print(f"- Python {python_version}: not on this machine, and uv could not install it; skipped", flush=True)
            continue
        for installer in installers:
            passed, line = outcome(python, installer, chosen, version)
            counts["passed" if passed else "failed"] += 1
            print(f"{'✓' if passed else '✗'} Python {python_version}, {installer}: {line}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return int(counts["failed"] > 0 or counts["passed"] == 0 or (chosen.all and counts["skipped"] > 0))


if __name__ == "__main__":
    sys.exit(main())
