"""FastAPI: the lifespan, the dependency, errors as answers; the test client, several uvicorn workers, reload."""

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.client import IncompleteRead
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jitney
import jitney.fastapi
import msgspec
import numpy as np
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.routing import Mount
from witnesses import APPS, Witness, app, wait

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
    from harness import Server

Crashing = Annotated[jitney.Model[str, str], jitney.fastapi.model("crashing")]
SyncCrashing = Annotated[jitney.SyncModel[str, str], jitney.fastapi.sync_model("crashing")]


def application(**options: Any) -> FastAPI:
    api = FastAPI()
    jitney.fastapi.install(api, app("crashing"), **options)

    @api.get("/reverse")
    async def reverse(text: str, crashing: Crashing, timeout_s: float | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        return await crashing(text, timeout_s=timeout_s)

    return api


def test_a_model_that_the_application_names_wrongly_is_its_own_error() -> None:
    api = application()

    @api.get("/wrong")
    async def wrong(text: str, model: Annotated[Any, jitney.fastapi.model("crashng")]) -> str:  # pyright: ignore[reportUnusedFunction]
        return await model(text)

    with TestClient(api) as client, pytest.raises(RuntimeError, match=r"model\('crashng'\): .*crashing"):
        client.get("/wrong", params={"text": "bus"})


def test_an_application_shows_the_live_page_of_its_engine() -> None:
    api, asked = application(), list[str]()

    def note(request: Request) -> None:
        asked.append(request.url.path)

    jitney.fastapi.live(api, "/internal", dependencies=[Depends(note)])
    with TestClient(api) as client:
        page = client.get("/internal/live")
        assert (page.status_code, page.headers["content-security-policy"][:18]) == (200, "default-src 'none'")
        assert "live/events" in page.text
        assert client.get("/reverse", params={"text": "bus"}).json() == "sub"
        events = api.state.jitney.live_events()
        assert next(events).startswith(b"event: history\ndata: {")
        names = [one["name"] for one in json.loads(next(events).split(b"data: ")[1])["deployments"]]
        assert "crashing" in names
    assert len(list(events)) < 10, "they end with the engine"
    assert asked == ["/internal/live"]


def test_a_model_in_the_wrong_kind_of_handler_says_what_to_write() -> None:
    """One would stop the event loop, the other would make a coroutine that nothing awaits."""
    api = application()

    @api.get("/waits")
    async def waits(text: str, crashing: SyncCrashing, many: bool = False) -> Any:  # pyright: ignore[reportUnusedFunction]
        return crashing.many([text]) if many else crashing(text)

    @api.get("/forgets")
    def forgets(text: str, crashing: Crashing, many: bool = False) -> Any:  # pyright: ignore[reportUnusedFunction]
        return crashing.many([text]) if many else crashing(text)

    with TestClient(api) as client:
        for many in (False, True):
            with pytest.raises(RuntimeError, match=r"take jitney\.fastapi\.model\(…\) and `await` the call"):
                client.get("/waits", params={"text": "bus", "many": many})
            with pytest.raises(RuntimeError, match=r"take jitney\.fastapi\.sync_model\(…\), or write `async def`"):
                client.get("/forgets", params={"text": "bus", "many": many})


def test_a_model_may_be_called_where_its_kind_of_call_is_right() -> None:
    api, answers = application(), list[str]()

    @api.get("/thread")
    async def thread(text: str, crashing: SyncCrashing) -> str:  # pyright: ignore[reportUnusedFunction]
        return await run_in_threadpool(crashing, text)

    @api.get("/loop")
    def loop(text: str, crashing: Crashing) -> str:  # pyright: ignore[reportUnusedFunction]
        async def call() -> str:
            return await crashing(text)

        return asyncio.run(call())

    @api.get("/later")
    def later(text: str, crashing: Crashing, tasks: BackgroundTasks) -> str:  # pyright: ignore[reportUnusedFunction]
        async def call() -> None:
            answers.append(await crashing(text))

        tasks.add_task(call)
        tasks.add_task(crashing, text)
        return "accepted"

    with TestClient(api) as client:
        for path, answer in (("/thread", "sub"), ("/loop", "sub"), ("/later", "accepted")):
            assert client.get(path, params={"text": "bus"}).json() == answer, path
    assert answers == ["sub"]


def test_the_test_client_starts_and_ends_the_models_each_time(witness: Witness) -> None:
    api = application()
    for _ in range(2):
        with TestClient(api) as client:
            assert client.get("/reverse", params={"text": "bus"}).json() == "sub"
        witness.assert_nobody_left()


def test_a_test_client_without_with_says_what_to_write() -> None:
    with pytest.raises(RuntimeError, match=r"write `with TestClient\(app\) as client:`"):
        TestClient(application()).get("/reverse", params={"text": "bus"})


NEUTRAL = "the model failed on this input; the log says why, next to the request id "


def test_errors_become_their_statuses(witness: Witness, caplog: pytest.LogCaptureFixture) -> None:
    options = {"crashing.max_queued_items": 1}
    with TestClient(application(options=options)) as client, ThreadPoolExecutor(3) as pool:
        answer = client.get("/reverse", params={"text": "raise"}, headers={"x-request-id": "mine-1"})
        assert (answer.status_code, answer.headers["x-jitney-reason"]) == (500, "model_failed")
        assert answer.json() == {"detail": f"{NEUTRAL}mine-1"} and answer.headers["x-request-id"] == "mine-1"
        assert "request mine-1: model_failed: RuntimeError: the model cannot do raise" in caplog.text
        wait(lambda: "(request mine-1)" in caplog.text, "the worker's traceback is next to the same id")
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


def asked(api: FastAPI) -> FastAPI:
    """Add handlers that take the model from the application's state, without the dependency."""

    @api.get("/state")
    async def state(text: str, timeout_s: float | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        return await api.state.jitney.crashing(text, timeout_s=timeout_s)

    @api.get("/many")
    async def many(text: str) -> list[str]:  # pyright: ignore[reportUnusedFunction]
        answers: list[str] = await api.state.jitney.crashing.many(["bus", text])
        return answers

    @api.websocket("/socket")
    async def socket(socket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction]
        await socket.accept()
        await socket.send_text(await api.state.jitney.crashing(await socket.receive_text()))

    return api


@pytest.mark.parametrize("path", ["/reverse", "/state"])
def test_both_ways_to_a_model_answer_alike(path: str, witness: Witness) -> None:
    api = asked(application())
    api.add_middleware(GZipMiddleware)
    for _ in range(2):  # an application may start again
        with TestClient(api) as client:
            failed = client.get(path, params={"text": "raise"})
            assert (failed.status_code, failed.headers["x-jitney-reason"]) == (500, "model_failed")
            assert failed.json() == {"detail": NEUTRAL + failed.headers["x-request-id"]}
            late = client.get(path, params={"text": "late", "timeout_s": 1e-9})
            assert (late.status_code, late.headers["x-jitney-reason"]) == (504, "deadline_exceeded")
            assert client.get(path, params={"text": "bus"}).json() == "sub"


def test_what_failed_among_many_can_be_raised(witness: Witness) -> None:
    with TestClient(asked(application())) as client:
        assert client.get("/many", params={"text": "tram"}).json() == ["sub", "mart"]
        assert client.get("/many", params={"text": "raise"}).headers["x-jitney-reason"] == "model_failed"


def test_an_application_may_answer_in_its_own_form(witness: Witness) -> None:
    api = asked(application())

    @api.exception_handler(HTTPException)
    async def shaped(_: Request, error: Exception) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        assert isinstance(error, HTTPException)
        return JSONResponse({"oops": error.detail}, error.status_code, error.headers)

    @api.exception_handler(504)
    def late(*_: object) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse("late", 504)

    with TestClient(api) as client:
        for path in ("/reverse", "/state"):
            failed = client.get(path, params={"text": "raise"})
            assert (failed.status_code, failed.json()) == (500, {"oops": NEUTRAL + failed.headers["x-request-id"]})
            assert failed.headers["x-jitney-reason"] == "model_failed"
            assert client.get(path, params={"text": "late", "timeout_s": 1e-9}).json() == "late"


@pytest.mark.parametrize("kind", [jitney.RequestError, jitney.JitneyError])
def test_a_handler_of_the_applications_own_stays(kind: type[Exception], witness: Witness) -> None:
    api = asked(application())

    @api.exception_handler(kind)
    async def own(_: Request, error: Exception) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(type(error).__name__, 418)

    with TestClient(api) as client:
        for path in ("/reverse", "/state"):
            answer = client.get(path, params={"text": "raise"})
            assert (answer.status_code, answer.json()) == (418, "ModelFailed")


class Hidden:
    """Middleware that keeps to itself what it calls."""

    def __init__(self, app: Any) -> None:
        self.inner = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.inner(scope, receive, send)


def test_middleware_that_hides_the_application_does_not_hide_the_statuses(witness: Witness) -> None:
    api = asked(application())
    api.add_middleware(Hidden)
    with TestClient(api) as client:
        assert client.get("/state", params={"text": "raise"}).headers["x-jitney-reason"] == "model_failed"


class Counted:
    """Middleware that counts its instances."""

    count = 0

    def __init__(self, app: Any) -> None:
        self.inner = app
        Counted.count += 1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.inner(scope, receive, send)


def test_middleware_is_made_once(witness: Witness) -> None:
    api = asked(application())
    api.add_middleware(Counted)
    Counted.count = 0
    with TestClient(api) as client:
        assert client.get("/state", params={"text": "raise"}).headers["x-jitney-reason"] == "model_failed"
        assert client.get("/state", params={"text": "bus"}).json() == "sub"
    assert Counted.count == 1


def test_a_mounted_application_has_models_and_statuses(witness: Witness) -> None:
    api, inner, innermost = application(), FastAPI(), FastAPI()

    for each in (inner, innermost):

        @each.get("/reverse")
        async def reverse(text: str, crashing: Crashing) -> str:  # pyright: ignore[reportUnusedFunction]
            return await crashing(text)

    inner.mount("/innermost", innermost)
    api.mount("/inner", inner)  # after `install`
    for _ in range(2):  # an application may start again
        with TestClient(api) as client:
            for path in ("/reverse", "/inner/reverse", "/inner/innermost/reverse"):
                assert client.get(path, params={"text": "bus"}).json() == "sub"
                failed = client.get(path, params={"text": "raise"})
                assert (failed.status_code, failed.headers["x-jitney-reason"]) == (500, "model_failed")


def test_the_applications_own_lifespan_finds_the_models_and_keeps_its_state(witness: Witness) -> None:
    answers: list[str] = []

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncGenerator[dict[str, str]]:
        answers.append(await api.state.jitney.crashing("bus"))
        yield {"greeting": "hello"}
        answers.append(await api.state.jitney.crashing("tram"))

    api = FastAPI(lifespan=own)
    jitney.fastapi.install(api, app("crashing"))

    @api.get("/")
    async def greet(request: Request, crashing: Crashing) -> str:  # pyright: ignore[reportUnusedFunction]
        return request.state.greeting + await crashing("!")

    with TestClient(api) as client:
        assert client.get("/").json() == "hello!"
    assert answers == ["sub", "mart"]


def test_a_lifespan_alone_runs_the_models(witness: Witness) -> None:
    api = FastAPI(lifespan=jitney.fastapi.lifespan(app("crashing")))

    @api.get("/")
    async def reverse(crashing: Crashing) -> str:  # pyright: ignore[reportUnusedFunction]
        return await crashing("bus")

    with TestClient(api) as client:
        assert client.get("/").json() == "sub"


def test_a_websocket_ends_with_the_error(witness: Witness) -> None:
    with TestClient(asked(application())) as client:
        with client.websocket_connect("/socket") as socket:
            socket.send_text("bus")
            assert socket.receive_text() == "sub"
        with pytest.raises(jitney.ModelFailed), client.websocket_connect("/socket") as socket:
            socket.send_text("raise")
            socket.receive_text()


def test_a_model_without_install_is_an_error_that_names_it() -> None:
    api = FastAPI()

    @api.get("/")
    async def nothing(crashing: Crashing) -> str:  # pyright: ignore[reportUnusedFunction]
        return await crashing("x")

    with pytest.raises(RuntimeError, match=r"no models run: call jitney\.fastapi\.install"), TestClient(api) as client:
        client.get("/")
    with pytest.raises(TypeError, match="either targets"):
        jitney.fastapi.install(api)


def test_install_after_the_first_request_is_an_error() -> None:
    api = FastAPI()
    assert TestClient(api).get("/").status_code == 404
    with pytest.raises(RuntimeError, match=r"call jitney\.fastapi\.install before its first request"):
        jitney.fastapi.install(api, app("crashing"))


def test_plain_handlers_call_models_too(witness: Witness, caplog: pytest.LogCaptureFixture) -> None:
    api, inner = application(), FastAPI()

    for each in (api, inner):

        @each.get("/plain")
        def plain(text: str, crashing: SyncCrashing) -> list[str]:  # pyright: ignore[reportUnusedFunction]
            return [crashing(text), *crashing.many([text, "tram"])]

    api.router.routes.append(Mount("/list", routes=[Mount("/inner", inner)]))
    with TestClient(api) as client, ThreadPoolExecutor(8) as pool:
        for path in ("/plain", "/list/inner/plain"):
            answers = list(pool.map(client.get, [f"{path}?text=bus"] * 16))
            assert [answer.json() for answer in answers] == [["sub", "sub", "mart"]] * 16
            failed = client.get(path, params={"text": "raise"}, headers={"x-request-id": f"plain{path}"})
            assert (failed.status_code, failed.headers["x-jitney-reason"]) == (500, "model_failed")
            assert failed.headers["x-request-id"] == f"plain{path}"
    wait(lambda: "(request plain/plain)" in caplog.text, "the worker's traceback is next to the id of the request")


class Point(msgspec.Struct):
    x: float
    tag: str | None = None


class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray


class Order(BaseModel):
    product: str = Field(serialization_alias="what")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1.5), {"x": 1.5, "tag": None}),
        ([Point(1, "a"), {"at": np.int64(3)}], [{"x": 1.0, "tag": "a"}, {"at": 3}]),
        (np.array([[1, math.nan], [math.inf, 0.5]], np.float32), [[1.0, None], [None, 0.5]]),
        (np.array([[True], [False]]), [[True], [False]]),
        (Pair(np.zeros(2), np.ones(1, np.uint8)), {"left": [0.0, 0.0], "right": [1]}),
        ([Pair(np.zeros(1), np.zeros(0))], [{"left": [0.0], "right": []}]),
        (Order(product="tea"), {"what": "tea"}),
        ({"image": jitney.Image(b"\xff\xd8\xff"), "raw": b"x"}, {"image": "/9j/", "raw": "eA=="}),
        ("text", "text"),
        (None, None),
    ],
)
def test_answers_of_models_are_json(value: object, expected: object) -> None:
    api = FastAPI()

    @api.get("/")
    async def answer() -> jitney.fastapi.JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return jitney.fastapi.JSONResponse(value, 201, {"x-more": "1"})

    answered = TestClient(api).get("/")
    assert (answered.status_code, answered.headers["content-type"], answered.headers["x-more"]) == (
        201,
        "application/json",
        "1",
    )
    assert answered.json() == expected


def test_what_is_no_json_is_named() -> None:
    with pytest.raises(NotImplementedError, match="a TestClient cannot be written as JSON; return a struct"):
        jitney.fastapi.JSONResponse({"a": [TestClient(FastAPI())]})


LISTENING = re.compile(r"running on http://127\.0\.0\.1:([1-9]\d*)")
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
app = FastAPI()
if place:
    jitney.fastapi.install(app, connect=place)
else:
    jitney.fastapi.install(app, Shout)

@app.get("/")
async def shout(text: str, model: Annotated[jitney.Model[str, str], jitney.fastapi.model(Shout)]) -> list[object]:
    return [await model(text), os.getpid()]
"""


def uvicorn(
    folder: Path, *arguments: str, program: str = PROGRAM, **environment: str
) -> tuple["subprocess.Popen[bytes]", int]:
    """Start uvicorn on a port that the system chooses; its log names it."""
    (folder / "shouting.py").write_text(program)
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "shouting:app", "--port", "0", "--no-use-colors", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(APPS), **environment},
            stderr=stderr,
        )
    wait(lambda: LISTENING.search(log.read_text()), "uvicorn says where it listens")
    port = LISTENING.search(log.read_text())
    assert port
    return process, int(port[1])


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


STREAMS = r"""
import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated
import jitney, jitney.fastapi
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

@jitney.deployment(batched=False)
class Spell:
    def predict(self, text: str) -> Iterator[jitney.Step[str]]:
        for letter in text:
            if letter == "!":
                raise ValueError("no shouting")
            yield letter

app = FastAPI()
jitney.fastapi.install(app, Spell)
Model = Annotated[jitney.StreamModel[str, str, str], jitney.fastapi.model(Spell)]

@app.get("/")
async def spell(text: str, model: Model) -> StreamingResponse:
    return StreamingResponse(await model.stream(text).begin(), media_type="text/plain")

async def events_of(parts: jitney.Parts[str]) -> AsyncIterator[str]:
    try:
        async for part in parts:
            yield f"data: {json.dumps(part)}\n\n"
    except jitney.RequestError as error:
        yield f"event: error\ndata: {json.dumps(error.reason)}\n\n"

@app.get("/events")
async def events(text: str, model: Model) -> StreamingResponse:
    return StreamingResponse(events_of(await model.stream(text).begin()), media_type="text/event-stream")
"""


def test_a_stream_that_fails_in_the_middle_is_broken_off_unless_the_handler_says_why(
    tmp_path: Path, witness: Witness
) -> None:
    process, port = uvicorn(tmp_path, program=STREAMS)

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.read()

    try:
        assert get("/?text=abc") == b"abc"
        with pytest.raises(urllib.error.HTTPError) as early:
            get("/?text=!")
        early.value.close()
        assert (early.value.code, early.value.headers["x-jitney-reason"]) == (500, "model_failed")
        with pytest.raises(IncompleteRead) as broken:
            get("/?text=ab!")
        assert broken.value.partial == b"ab"
        assert "ModelFailed: ValueError: no shouting" in (tmp_path / "log").read_text()
        assert get("/events?text=ab!") == b'data: "a"\n\ndata: "b"\n\nevent: error\ndata: "model_failed"\n\n'
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.mark.parametrize(
    ("answer", "body", "media_type"),
    [
        (jitney.Response("<b>", "text/html", {"x-shade": "teal"}), b"<b>", "text/html; charset=utf-8"),
        (jitney.Response({"a": 1}, headers={"x-shade": "teal"}), b'{"a":1}', "application/json"),
        (jitney.Image(b"\x89PNG\r\n\x1a\n"), b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"RIFF", b"RIFF", "application/octet-stream"),
        ("text", b'"text"', "application/json"),
    ],
)
def test_what_a_model_answered_is_the_answer_of_a_handler(answer: object, body: bytes, media_type: str) -> None:
    sent = jitney.fastapi.response(answer)
    assert (sent.body, sent.headers["content-type"]) == (body, media_type)
    assert sent.headers.get("x-shade") == ("teal" if isinstance(answer, jitney.Response) else None)


def test_a_response_in_json_is_refused_with_what_to_return() -> None:
    with pytest.raises(TypeError, match=r"return jitney\.fastapi\.response\(answer\)"):
        jitney.fastapi.JSONResponse(jitney.Response(b""))
