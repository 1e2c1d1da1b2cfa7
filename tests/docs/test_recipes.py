"""The recipes: each file runs with the real library, in several processes, next to a real `jitney serve`."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pages import blocks, pages_below

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    from harness import Server

PAGES = pages_below("docs/how-to/frameworks", [])
BLOCKS = [block for page in PAGES for block in blocks(page)]
FILES = {block.file: block for block in BLOCKS if block.file}
LISTENING = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
PROGRAMS = ("--listen-programs", "unix:models.sock", "--max-body-bytes", "2000")
TEXTS = [f"{'a' * length} bus" for length in range(1, 41)]


def test_every_block_is_run_or_says_why_not() -> None:
    assert set(FILES) == {"flask_app.py", "django_app.py", "celery_app.py"}
    others = [(block.language, block.reason) for block in BLOCKS if not block.file]
    assert others == [("console", "the tests start it")] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has who saved the files."""
    where = tmp_path_factory.mktemp("recipes")
    (model,) = [block for block in blocks("docs/how-to/programs/first-call.md") if block.file == "lengths.py"]
    for block in (model, *FILES.values()):
        assert block.file
        (where / block.file).write_text(block.text)
    return where


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    started = Server(folder, ["lengths.py"], PROGRAMS, {})
    try:
        yield started.wait_ready()
    finally:
        started.finish()


@contextmanager
def program(folder: Path, *arguments: str, **environment: str) -> Generator[Path]:
    """Run a program of a recipe, as its page starts it; gives the file with what it prints."""
    log = folder / f"{Path(arguments[0]).name}-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env={**os.environ, "MODELS": "unix:models.sock", **environment},
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()


def wait_for(log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = pattern.search(log.read_text())
        if found:
            return found
        time.sleep(0.05)
    pytest.fail(f"{pattern.pattern!r} is not in\n{log.read_text()}")


def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=20) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), error.headers


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["", "preload"])
@pytest.mark.parametrize(("library", "target"), [("flask", "flask_app:app"), ("django", "django_app:application")])
def test_a_web_application_in_forked_processes_calls_one_model(
    library: str, target: str, options: tuple[str, ...], folder: Path, server: Server
) -> None:
    pytest.importorskip(library)
    pytest.importorskip("gunicorn")
    before = server.metric("jitney_requests_total", deployment="lengths", outcome="ok")
    gunicorn = ("gunicorn", target, "--workers", "2", "--threads", "8", "--bind", "127.0.0.1:0", *options)
    with program(folder, *gunicorn, SECRET_KEY="of the test") as log, ThreadPoolExecutor(16) as pool:
        url = f"http://127.0.0.1:{wait_for(log, LISTENING)[1]}/length?text="
        answers = list(pool.map(get, [url + text.replace(" ", "+") for text in TEXTS]))
        expected = [len(text) - 1 for text in TEXTS]
        assert [body for _, body, _ in answers] in (expected, [{"length": length} for length in expected])
        assert server.metric("jitney_requests_total", deployment="lengths", outcome="ok") - before == len(TEXTS)
        status, body, headers = get(url + "a" * 3000)
        assert (status, headers["x-jitney-reason"]) == (413, "too_large")
        assert "max_body_bytes" in body["detail"]
        if library == "flask":
            assert get(url + "a" * 3000, {"x-request-id": "mine-1"})[2]["x-request-id"] == "mine-1"
            assert get(url + "abc", {"x-request-id": "two words"})[0] == 200, "an id that no log can hold is left out"


CALLS = """
from celery_app import length

results = [length.delay("a" * count) for count in range(1, 9)]
print([result.get(timeout=40) for result in results])
"""


def test_a_celery_worker_of_several_processes_calls_one_model(folder: Path, server: Server) -> None:
    pytest.importorskip("celery")
    before = server.metric("jitney_requests_total", deployment="lengths", outcome="ok")
    # A broker without a server: what one program puts out is what the others take in.
    (folder / "data_in").mkdir(exist_ok=True)
    (folder / "data_out").symlink_to("data_in")
    (folder / "results").mkdir()
    places = {"BROKER": "filesystem://", "RESULTS": f"file://{folder / 'results'}"}
    celery = ("celery", "-A", "celery_app", "worker", "--concurrency", "2", "--loglevel", "info")
    with program(folder, *celery, **places) as log:
        wait_for(log, re.compile("ready"))
        called = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CALLS)],
            cwd=folder,
            env={**os.environ, "MODELS": "unix:models.sock", **places},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert called.stdout == f"{[*range(1, 9)]}\n", called.stderr + log.read_text()
    assert server.metric("jitney_requests_total", deployment="lengths", outcome="ok") - before == 8
