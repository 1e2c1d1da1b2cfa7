"""The programs of `examples/` do what they say."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import nbformat
from nbclient import NotebookClient

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
    from harness import Server

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples/programs"


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def test_the_search_finds_with_several_workers_and_one_model(tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/models.sock"
    server = Server(tmp_path, ["minilm"], ("--listen-programs", place), {}).wait_ready()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["uvicorn", "--app-dir", str(PROGRAMS), "search:app", "--workers", "2", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", *command], env={**os.environ, "MODELS": place}, cwd=tmp_path)
    try:
        end = time.monotonic() + 60
        found = None
        while found is None:
            assert time.monotonic() < end
            try:
                found = get(port, "/search?q=Where+do+I+eat+well")
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        assert found[0][0].startswith("The restaurant on the corner")
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        assert get(port, "/search?q=public+transport+after+midnight&count=1")[0][0].startswith("The night bus")
        assert len(server.workers()) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        server.finish()


def test_the_script_finds_lines_that_are_alike(tmp_path: Path) -> None:
    text = "the bus leaves when it is full, or when it is time\nnothing like the other two lines is said here\n"
    (tmp_path / "lines.txt").write_text(text + "The bus leaves when it is full or when it is time.\n")
    script = [sys.executable, str(PROGRAMS / "duplicates.py"), "lines.txt"]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("3 lines; most similar (0.9")
    assert "nothing like" not in ran.stdout


AGAIN = (
    "before = models.shout",
    "the cell itself",
    "try:\n    await before('again')\nexcept jitney.Draining:\n    print('the engine before is closed')",
)


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook: Any = cast("Any", nbformat).read(PROGRAMS / "notebook.ipynb", as_version=4)
    (place,) = [place for place, cell in enumerate(notebook.cells) if "engine.start()" in cell.source]
    # The cell is run again, as users do: the engine before must be closed.
    twice = [{**notebook.cells[place], "id": f"again{n}", "source": source} for n, source in enumerate(AGAIN)]
    twice[1]["source"] = notebook.cells[place].source
    notebook.cells[place + 1 : place + 1] = map(cast("Any", nbformat).from_dict, twice)
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "A SMALL BUS" in outputs
    assert "InvalidInput('expected str, got int')" in outputs
    assert "%%writefile" in outputs
    assert "the engine before is closed" in outputs
