"""FastAPI: the lifespan, the dependency, errors as answers; the test client, several uvicorn workers, reload."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jitney
import jitney.fastapi
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from witnesses import APPS, Witness, app, wait

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
    from harness import Server

Poison = Annotated[jitney.Model[str, str], jitney.fastapi.model("poison")]


def application(**options: Any) -> FastAPI:
    api = FastAPI(lifespan=jitney.fastapi.lifespan(app("poison"), **options))

    @api.get("/reverse")
    async def reverse(text: str, poison: Poison, timeout_s: float | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        return await poison(text, timeout_s=timeout_s)

    return api


def test_the_test_client_starts_and_ends_the_models_each_time(witness: Witness) -> None:
    api = application()
    for _ in range(2):
        with TestClient(api) as client:
            assert client.get("/reverse", params={"text": "bus"}).json() == "sub"
        witness.assert_nobody_left()


def test_errors_become_their_statuses(witness: Witness) -> None:
    options = {"poison.max_queued_items": 1}
    with TestClient(application(options=options)) as client, ThreadPoolExecutor(3) as pool:
        answer = client.get("/reverse", params={"text": "raise"})
        assert (answer.status_code, answer.headers["x-jitney-reason"]) == (500, "model_failed")
        assert answer.json() == {"detail": "RuntimeError: the model cannot do raise"}
        before = len(witness.calls())
        witness.shut_gate()
        held = pool.submit(client.get, "/reverse", params={"text": "held"})
        wait(lambda: len(witness.calls()) > before, "the model is held")
        late = client.get("/reverse", params={"text": "late", "timeout_s": 0.1})
        assert (late.status_code, late.headers["x-jitney-reason"]) == (504, "deadline_exceeded")
        queued = pool.submit(client.get, "/reverse", params={"text": "queued"})
        refused = pool.submit(client.get, "/reverse", params={"text": "refused"})
        wait(lambda: queued.done() or refused.done(), "one of them is refused")
        witness.open_gate()
        assert held.result().json() == "dleh"
        assert sorted((queued.result().status_code, refused.result().status_code)) == [200, 429]


def test_a_model_without_a_lifespan_is_told() -> None:
    api = FastAPI()

    @api.get("/")
    async def nothing(poison: Poison) -> str:  # pyright: ignore[reportUnusedFunction]
        return await poison("x")

    with pytest.raises(RuntimeError, match="give the application lifespan="), TestClient(api) as client:
        client.get("/")
    with pytest.raises(TypeError, match="either targets"):
        jitney.fastapi.lifespan()


PROGRAM = """
import os
from typing import Annotated
import jitney, jitney.fastapi
from fastapi import FastAPI

@jitney.deployment
class Shout:
    def predict(self, texts: list[str]) -> list[str]:
        return [text.upper() for text in texts]

place = os.environ.get("PLACE")
app = FastAPI(lifespan=jitney.fastapi.lifespan(connect=place) if place else jitney.fastapi.lifespan(Shout))

@app.get("/")
async def shout(text: str, model: Annotated[jitney.Model[str, str], jitney.fastapi.model(Shout)]) -> list[object]:
    return [await model(text), os.getpid()]
"""


def uvicorn(folder: Path, *arguments: str, **environment: str) -> tuple["subprocess.Popen[bytes]", int]:
    (folder / "shouting.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "shouting:app", "--port", str(port), "--log-level", "warning", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(APPS), **environment},
    )
    return process, port


def ask(port: int, text: str = "hi") -> list[Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/?text={text}", timeout=20) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None


def until_asked(port: int, text: str = "hi", expected: str = "HI") -> None:
    end = time.monotonic() + 60
    while (ask(port, text) or [None])[0] != expected:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_several_uvicorn_workers_share_one_engine(tmp_path: Path, witness: Witness) -> None:
    (tmp_path / "model.py").write_text(textwrap.dedent(PROGRAM.split("place =", maxsplit=1)[0]))
    server = Server(tmp_path, ["model.py"], ("--listen-programs", f"unix:{tmp_path}/p"), {})
    server.wait_ready()
    process, port = uvicorn(tmp_path, "--workers", "2", PLACE=f"unix:{tmp_path}/p")
    try:
        until_asked(port)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, [port] * 200, [f"t{n}" for n in range(200)]))
        assert [answer and answer[0] for answer in answers] == [f"T{n}" for n in range(200)]
        assert server.metric("jitney_requests_total", deployment="shout", outcome="ok") >= 201
        assert len(server.workers()) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        server.finish()


def test_an_engine_inside_goes_through_reload_and_ends_with_uvicorn(tmp_path: Path, witness: Witness) -> None:
    process, port = uvicorn(tmp_path, "--reload")
    try:
        until_asked(port)
        (tmp_path / "shouting.py").write_text(PROGRAM.replace("text.upper()", "text.upper() + '!'"))
        until_asked(port, expected="HI!")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
