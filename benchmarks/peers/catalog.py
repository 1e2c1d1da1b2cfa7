"""The servers: where they are documented, how they are started, what they are sent, and the grid that is tuned."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peers.loads import LOADS, STREAMS, Item, joined

HERE = Path(__file__).resolve().parent
SERVED = HERE / "served"
JSON, RAW = "application/json", "application/octet-stream"
ALL = tuple(LOADS)


@dataclass(frozen=True)
class Cell:
    """One choice of settings."""

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        parts = [f"{key}={value}" for key, value in (self.settings | self.environment).items() if key != "variant"]
        return ", ".join(parts) or "defaults"


@dataclass(frozen=True)
class Request:
    """How one item is sent."""

    path: str
    body: bytes
    content_type: str = JSON
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a server runs."""

    python: Path
    port: int
    load: str

    @property
    def bin(self) -> Path:
        return self.python.parent


@dataclass(frozen=True)
class Server:
    """One server of the comparison."""

    name: str
    title: str
    source: str
    """Where the set-up is documented."""
    package: str
    command: Callable[[Place, Cell], list[str]]
    cells: tuple[Cell, ...] = (Cell(),)
    requirements: str | None = None
    """Its file in `requirements`; without one it runs in the environment of the comparison itself."""
    loads: tuple[str, ...] = ALL
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Loads that it cannot serve, each with the reason."""
    request: Callable[[str, Item], Request] = field(default=lambda load, item: simple(load, item))  # noqa: PLW0108  defined below
    answer: Callable[[str, bytes, dict[str, str]], Any] = field(
        default=lambda load, body, _: plain(load, body)  # defined below
    )
    download_gb: float = 0.2
    """About what its environment fetches; more than `MAX_DOWNLOAD_GB` is not fetched unasked."""
    start_s: float = 3
    """How long it takes to start, for the plan only."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    restarts: bool = False
    """Whether it is ended after each turn and started again, because a stop (SIGSTOP) misleads it."""


def simple(load: str, item: Item, path: str = "/inference") -> Request:
    """The item itself, as JSON or as bytes."""
    return Request(path, item, RAW) if load == "bytes" else Request(path, json.dumps(item).encode())


def plain(load: str, body: bytes) -> Any:
    """The bytes, the document, or the text of a stream."""
    if load in STREAMS:
        return joined(body)
    return body if load == "bytes" else json.loads(body)


def script(name: str) -> Callable[[Place, Cell], list[str]]:
    return lambda place, _: [str(place.python), str(SERVED / name)]


# ── jitney ──────────────────────────────────────────────────────────────────


JITNEY = {"bytes": "raw", "minilm": "Minilm"}


def jitney_command(place: Place, _: Cell) -> list[str]:
    target = f"{SERVED / 'jitney_app.py'}:{JITNEY.get(place.load, place.load)}"
    if place.load in STREAMS:
        target = str(SERVED / "streams/jitney_steps.py")
    return [sys.executable, "-m", "jitney", "serve", target, "--port", str(place.port)]


def jitney_request(load: str, item: Item) -> Request:
    if load in STREAMS:
        return replace(simple(load, item, "/streamed"), headers=("accept: text/event-stream",))
    return simple(load, item, f"/{JITNEY.get(load, load).lower()}")


# ── BentoML: a batchable API takes a list per request ───────────────────────


def bentoml_request(load: str, item: Item) -> Request:
    if load == "bytes":
        return simple(load, item)
    return Request("/inference", json.dumps({"items": [item]}).encode())


# ── Triton ──────────────────────────────────────────────────────────────────


def triton_request(load: str, item: Item) -> Request:
    if load != "bytes":
        return Request("/v2/models/served/generate", json.dumps(item).encode())
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "body",
                    "shape": [1, len(item)],
                    "datatype": "UINT8",
                    "parameters": {"binary_data_size": len(item)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    length = f"Inference-Header-Content-Length: {len(header)}"
    return Request("/v2/models/served/infer", header + item, RAW, (length,))


def triton_answer(load: str, body: bytes, headers: dict[str, str]) -> Any:
    if load == "bytes":
        return body[int(headers["inference-header-content-length"]) :]
    answer = json.loads(body)
    return (
        answer["vector"] if load == "minilm" else {name: answer[name] for name in ("text", "group") if name in answer}
    )


def triton_text(_: str, body: bytes, __: dict[str, str]) -> str:
    """The joined text of a stream. An event without a text belongs to an item of a batch that goes on."""
    events = [json.loads(line.removeprefix(b"data:")) for line in body.splitlines() if line.startswith(b"data:")]
    return "".join(event.get("text", "") for event in events)


# ── infinity: OpenAI's form ─────────────────────────────────────────────────


def infinity_command(place: Place, cell: Cell) -> list[str]:
    return [
        str(place.bin / "infinity_emb"), "v2", "--model-id", str(infinity_model(place)),
        "--served-model-name", "minilm", "--engine", "optimum", "--device", "cpu", "--no-bettertransformer",
        "--host", "127.0.0.1", "--port", str(place.port), "--log-level", "error",
        "--batch-size", str(cell.settings.get("batch_size", 32)),
    ]  # fmt: skip


def infinity_model(place: Place) -> Path:
    """The folder that `peers/environments.py` put together from the same weights."""
    return place.bin.parent / "minilm"


def infinity_request(_: str, item: Item) -> Request:
    return Request("/embeddings", json.dumps({"model": "minilm", "input": [item["text"]]}).encode())


def fastapi_command(place: Place, _: Cell) -> list[str]:
    return [
        str(place.python), "-m", "uvicorn", "--app-dir", str(SERVED), "fastapi_server:app", "--port", str(place.port),
        "--log-level", "warning", "--no-access-log",
    ]  # fmt: skip


def fastapi(variant: str, title: str, *cells: dict[str, Any]) -> Server:
    return Server(
        name=f"fastapi-{variant}",
        title=title,
        source="https://fastapi.tiangolo.com/async/",
        package="fastapi",
        requirements="fastapi.txt",
        command=fastapi_command,
        cells=tuple(Cell({"variant": variant, **settings}) for settings in cells or ({},)),
        start_s=2,
    )


def one_of(key: str, *values: Any) -> tuple[Cell, ...]:
    return tuple(Cell({key: value}) for value in values)


def streamed(whole: dict[str, Server]) -> dict[str, Server]:
    """The servers with answers in parts, in the environments that they have. Their scripts are in `served/streams`."""

    def of(name: str, base: str, title: str, source: str, command: str, *cells: Cell) -> Server:
        def filled(place: Place, _: Cell) -> list[str]:
            at = SERVED / "streams"
            return [word.format(python=place.python, bin=place.bin, at=at, port=place.port) for word in command.split()]

        return replace(
            whole[base],
            name=name,
            title=title,
            source=source,
            command=filled,
            cells=cells or (Cell(),),
            loads=tuple(STREAMS),
            missing={},
            request=simple,
            answer=lambda load, body, _: plain(load, body),
        )

    def queues(variant: str) -> list[Cell]:
        return [Cell({"variant": variant, "fast_queue": is_fast}) for is_fast in (False, True)]

    def triton(name: str, title: str, *cells: Cell) -> Server:
        source = "https://triton-inference-server.github.io/pytriton/latest/inference_callables"
        server = of(name, "pytriton", title, source, "{python} {at}/pytriton_streams.py", *cells)
        path = "/v2/models/served/generate_stream"
        return replace(server, request=lambda load, item: simple(load, item, path), answer=triton_text)

    litserve = ("https://lightning.ai/docs/litserve/features/streaming", "{python} {at}/litserve_streams.py")
    in_messages = {"PYTRITON_NO_TENSORSTORE": "1"}  # small tensors are faster there than in shared memory
    address = "--host 127.0.0.1 --port {port}"
    servers = (
        of("litserve-loop", "litserve", "LitServe, its loop", *litserve, *queues("loop")),
        of("litserve-batch", "litserve", "LitServe, batches that yield", *litserve, *queues("batches")),
        of(
            "litserve-one",
            "litserve",
            "LitServe, one item for each call",
            *litserve,
            Cell({"variant": "one", "enable_async": False, "fast_queue": True}),
            Cell({"variant": "one", "enable_async": True, "fast_queue": False}),
            Cell({"variant": "one", "enable_async": True, "fast_queue": True}),
        ),
        triton("pytriton-loop", "PyTriton, steps in a task", Cell(), Cell({}, in_messages)),
        replace(
            triton(
                "pytriton-batch",
                "PyTriton, batches that yield",
                Cell({"variant": "batches", "max_queue_delay_microseconds": 5_000}),
                Cell({"variant": "batches", "max_queue_delay_microseconds": 1_000}, in_messages),
                Cell({"variant": "batches", "max_queue_delay_microseconds": 5_000}, in_messages),
            ),
            loads=("stream-noop",),
            missing={
                "stream-sleepy": "an item that has ended gets empty events until its batch has ended, and the load "
                "generator counts them as parts"
            },
        ),
        of(
            "ray-stream",
            "ray",
            "Ray Serve, batches that yield",
            "https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html",
            "{python} {at}/ray_generator.py",
        ),
        of(
            "bentoml-stream",
            "bentoml",
            "BentoML, a generator per request",
            "https://docs.bentoml.com/en/latest/build-with-bentoml/streaming.html",
            f"{{bin}}/bentoml serve bentoml_generator:Served --working-dir {{at}} {address}",
        ),
        of(
            "mosec-stream",
            "mosec",
            "Mosec, events",
            "https://mosecorg.github.io/mosec/examples/sse.html",
            "{python} {at}/mosec_events.py --address 127.0.0.1 --port {port} --timeout 60000",
        ),
        of(
            "fastapi-stream",
            "fastapi-naive",
            "FastAPI, steps in a task",
            "https://fastapi.tiangolo.com/advanced/custom-response/",
            f"{{python}} -m uvicorn --app-dir {{at}} fastapi_loop:app {address} --log-level warning --no-access-log",
        ),
    )
    return {server.name: server for server in servers}


WHOLE: dict[str, Server] = {
    server.name: server
    for server in (
        Server(
            name="jitney",
            title="jitney",
            source="docs/how-to/index.md",
            package="jitney",
            command=jitney_command,
            loads=(*ALL, *STREAMS),
            request=jitney_request,
            start_s=2,
        ),
        Server(
            name="mosec",
            title="Mosec",
            source="https://mosecorg.github.io/mosec/reference/interface.html",
            package="mosec",
            requirements="mosec.txt",
            command=lambda place, _: [
                str(place.python),
                str(SERVED / "mosec_server.py"),
                "--address",
                "127.0.0.1",
                "--port",
                str(place.port),
                # Its own limit of 3 s is for requests, not for a machine that is busy with something else.
                "--timeout",
                "60000",
            ],
            cells=one_of("max_wait_time", 1, 5, 10),
            start_s=2,
        ),
        Server(
            name="litserve",
            title="LitServe",
            source="https://lightning.ai/docs/litserve/features/batching",
            package="litserve",
            requirements="litserve.txt",
            command=script("litserve_server.py"),
            cells=(
                Cell({"batch_timeout": 0.005, "fast_queue": False}),
                Cell({"batch_timeout": 0.005, "fast_queue": True}),
                Cell({"batch_timeout": 0.001, "fast_queue": True}),
            ),
            start_s=5,
        ),
        Server(
            name="bentoml",
            title="BentoML",
            source="https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html",
            package="bentoml",
            requirements="bentoml.txt",
            command=lambda place, _: [
                str(place.bin / "bentoml"),
                "serve",
                "bentoml_service:Served",
                "--working-dir",
                str(SERVED),
                "--host",
                "127.0.0.1",
                "--port",
                str(place.port),
            ],
            cells=one_of("max_latency_ms", 60_000, 1_000, 100),
            request=bentoml_request,
            answer=lambda load, body, _: body if load == "bytes" else json.loads(body)[0],
            environment={"BENTOML_DO_NOT_TRACK": "True"},
            start_s=6,
            restarts=True,  # it would take a stop of minutes for the time of a batch
        ),
        Server(
            name="ray",
            title="Ray Serve",
            source="https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html",
            package="ray",
            requirements="ray.txt",
            command=script("ray_server.py"),
            cells=(
                Cell({"batch_wait_timeout_s": 0.01}),
                Cell({"batch_wait_timeout_s": 0.001}),
                Cell({"batch_wait_timeout_s": 0.001}, {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}),
            ),
            # The second only for machines so busy that Ray takes longer than its own 30 s to start.
            environment={"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"},
            start_s=15,
            restarts=True,  # a node that has not been heard of for half a minute is given up
        ),
        Server(
            name="pytriton",
            title="PyTriton",
            source="https://triton-inference-server.github.io/pytriton/latest/reference/model_config",
            package="nvidia-pytriton",
            requirements="pytriton.txt",
            command=script("pytriton_server.py"),
            cells=one_of("max_queue_delay_microseconds", 0, 1_000, 5_000),
            request=triton_request,
            answer=triton_answer,
            start_s=4,
        ),
        Server(
            name="infinity",
            title="infinity",
            source="https://pypi.org/project/infinity-emb/",
            package="infinity-emb",
            requirements="infinity.txt",
            download_gb=3,  # torch, which on Linux comes with all of CUDA
            command=infinity_command,
            cells=one_of("batch_size", 32, 64),
            loads=("minilm",),
            missing={load: "serves embeddings only" for load in ALL if load != "minilm"},
            request=infinity_request,
            answer=lambda _, body, __: json.loads(body)["data"][0]["embedding"],
            environment={"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"},
            start_s=15,
        ),
        fastapi("naive", "FastAPI, model in the loop"),
        fastapi("threads", "FastAPI, model in threads"),
        fastapi("batched", "FastAPI, batched by hand", {"wait_ms": 1}, {"wait_ms": 5}, {"wait_ms": 10}),
    )
}
SERVERS = WHOLE | streamed(WHOLE)
