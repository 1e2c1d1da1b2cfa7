"""The Rust side as Python sees it. Every frame is read and written there; Python sees lists and buffers."""

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, final

__version__: str

def serve(settings: str, reread: Callable[[], tuple[str, list[str]]] | None = None) -> int:
    """Run the server until it is told to stop; returns the exit code.

    `settings` is JSON: {"server": ServerOptions, "server_sources": {option: layer}, "targets": [{"target": str,
    "overrides": Overrides}], "override_names": {name: place}, "environment_names": {name: place}, "python": str,
    "cores": int}.
    The names are those of deployments that options are given for: as written in the file and in `--set`, and as the
    environment spells them; one that no deployment has is an error that says the place.
    `reread` is called at SIGHUP: it returns the log level, which is in force from then on, and the names of other
    options that have changed, or raises.
    Releases the interpreter lock for its whole duration and owns SIGINT, SIGTERM and SIGHUP.
    """

def work(settings: str) -> int:
    """Run an agent until a signal ends it; returns the exit code. `settings` is JSON: see `jitney.cli.machines`."""

@final
class InlineServer:
    """A server whose one worker runs in this process, on the thread that asks for it."""

    def __new__(cls, settings: str) -> InlineServer:
        """Take the settings as `serve` does; nothing is started."""

    def run(self) -> int:
        """Run the server until it is told to stop; returns the exit code. Once, on a thread that does nothing else."""

    def next_worker(self) -> str | None:
        """Wait for the next worker that this process is to run, as JSON; None when the server has ended."""

    def ended(self, worker: int) -> None:
        """Say that this worker has ended."""

def adopt_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; exits at once if that has happened already."""

@final
class Link:
    """The worker's end of its link to the front.

    A Rust thread receives, answers heartbeats and notes cancels while Python computes. If the front goes away
    that thread kills the worker's whole process group.
    """

    def __new__(cls, address: str, token: str, ends_process: bool = True, id: str = "") -> Link:
        """Connect; `ends_process` says whether the end of the front ends this process.

        `id` is the number of a worker on another machine.
        """

    def send(self, kind: str, body: bytes) -> None:
        """Send a control message: `manifest`, `progress`, `ready` or `failed`; the body is JSON."""

    def keep(self, loaded: bytes) -> None:
        """Dial again when the link is lost, for 60 s; `loaded` (JSON) says which model this worker has then.

        What came over the lost link is cancelled, and its results are dropped.
        """

    def receive(self) -> tuple[str, bytes]:
        """Wait for a control message: `assign` (JSON) or `shutdown`."""

    def next_batch(self, timeout_s: float | None = None) -> Batch | None:
        """Wait for a batch with at least one item that is still wanted; None when told to shut down.

        TimeoutError if none has come within `timeout_s` seconds, or up to a second later.

        Items that were cancelled or whose deadline has passed are left out, and the front is told so.
        """

    def take(self) -> tuple[Batch | None, bool]:
        """Take the next batch if one has arrived, without waiting; False says that none will come any more."""

    def paused(self) -> list[int]:
        """Return the ids of the items of which no further part is to be made: their clients do not read."""

    def asking(self) -> list[int]:
        """Return the ids of the items for which the model asked something that has no answer yet."""

    def changes(self) -> int:
        """Return a number that grows with each message that may change what is to be computed."""

    def wait_for_change(self, changes: int, timeout_s: float) -> None:
        """Wait until `changes` has grown beyond this number, or for `timeout_s` seconds, or up to a second longer."""

    def started(self, batch: Batch) -> None:
        """Say that `predict` begins now. Call it right before, after decoding."""

    def send_results(self, results: Results, predict_s: float = 0.0) -> None:
        """Send what was collected since the last send: parts, and outcomes of items that end. The batch does not end.

        `predict_s` is the time in `predict` until now. If nothing was collected, this is a sign of life.
        """

    def send_step(
        self,
        batches: Sequence[Results],
        active: int,
        joined: int,
        step_s: float,
        join_s: float,
        *,
        out_of_memory: bool = False,
    ) -> None:
        """Send one step of a model, with what was collected of the items of these batches.

        `active` items were computed in `step_s`; `joined` ones were decoded and admitted before it, in `join_s`.
        `out_of_memory` says that all items together were too many for the memory of the device.
        """

    def finish(
        self,
        results: Results,
        decode_s: float,
        predict_s: float,
        encode_s: float,
        clean: bool = True,
        out_of_memory: bool = False,
    ) -> None:
        """Send the outcomes that were not sent before, the end of the batch and its durations in seconds.

        Every item must have exactly one outcome. `clean` says that `predict` saw each item once and raised nothing:
        only then do the durations teach the server what a batch costs.
        """

@final
class Batch:
    """The items of one batch, in order."""

    id: int
    method: str
    """Which method of the model computes it; empty if the model has one."""
    ids: list[int]
    tags: list[int]
    """One of TAG_* per item (of its first part)."""
    encodings: list[int]
    """What each item wants a struct encoded as: TAG_JSON or TAG_MSGPACK."""
    request_ids: list[str]
    """The request of each item, as clients and logs name it; empty for a request without an id."""
    streams: list[bool]
    """Whether the caller of each item takes its answer in parts."""
    keys: list[int]
    """A number of each item's group key, of a model that works in steps: only equal ones share a step."""
    has_left_out: bool
    """Whether items came with these that are not computed, because no request waited for them any more."""
    trace: str
    """The trace context (`traceparent`) of a batch of several items of which one is traced; empty otherwise."""

    def __len__(self) -> int: ...
    def metadata(self) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
        """What the request of each item says: (id, trace context, name of the key, headers).

        The `tracestate` stands behind a line feed.
        """

    def wanted(self) -> list[bool]:
        """Per item: neither cancelled nor expired by now. Ask right before `predict`."""

    def cancelled(self) -> list[bool]:
        """Per item: whether the front has cancelled it. After the first part the front alone knows the deadline."""

    def values(self) -> list[Any]:
        """One value per item: str for TAG_TEXT, bytes for all other tags (a copy, cheap for small items)."""

    def restore(self, indices: Sequence[int]) -> None:
        """Ask the front for the arrays of these items (ascending places) and write them over what is here.

        Nothing is written for an item that no request waits for any more.
        """

    def tensors(self, param: int) -> list[Tensor]:
        """The arrays of one parameter: a single stacked Tensor with n first where all items agree in dtype and
        shape (lanes see to that), else one Tensor per item.
        """

@final
class Tensor:
    """An array in a received frame. Supports the buffer protocol (bytes); wrap it with numpy.frombuffer.

    It is writable in a worker, and read-only in a program.
    """

    dtype: str
    shape: tuple[int, ...]
    stacked: bool

@final
class Results:
    """Collects the outcome of every item of a batch; index is the item's place in the batch."""

    def __new__(cls, batch: Batch, max_answer_bytes: int | None = None) -> Results:
        """An item whose answer has more than `max_answer_bytes` fails."""
    def parts(self) -> Results:
        """Return the same results for parts of items: more of an item follows what is written there."""

    def too_large(self) -> list[int]:
        """Return the items that ended because their answers have too many bytes.

        What is written of them later is not sent.
        """

    def later(self, index: int) -> None:
        """The model, which works in steps, has no room for the item now: it is to come again."""

    def end(self, index: int, reason: str, usage: tuple[int, int] | None = None) -> None:
        """The answer in parts of an item ends; `usage` is how many tokens were read and written.

        Values that are written of the item are its whole answer; there may be none.
        """

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """One encoded value per index: TAG_JSON, TAG_MSGPACK, TAG_TEXT (UTF-8) or TAG_BYTES with its media type."""

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: object) -> None:
        """Rows of a C-contiguous array (any object with the buffer protocol), one per index, in order.

        `name` is empty for a single unnamed array. Call again with other names for several arrays per item.
        The buffer is not copied: it must not change until `finish` has returned.
        """

    def error(
        self,
        index: int,
        reason: str,
        detail: str,
        field: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """The item failed; `reason` is one of the table of outcomes, e.g. `invalid_input`, `model_failed`."""

@final
class Starting:
    """Something that an engine does and that is waited for once: by `Mailbox.wait_for` or on this thread."""

    def wait(self) -> tuple[int, str] | None:
        """Wait without the interpreter lock; None if it went well, else (code, why)."""

@final
class Engine:
    """An engine in threads of this process, with its workers."""

    is_of_worker: bool
    """False: a program calls."""

    def __new__(cls, settings: str) -> Engine:
        """Start it; `settings` is JSON as for `serve`. RuntimeError if it cannot be started at all."""

    def ready(self) -> Starting:
        """All models are loaded, or will not be."""

    def close(self) -> Starting:
        """Take nothing new, finish what is in, end the workers."""

    def is_forked(self) -> bool:
        """Whether this is a fork of the process that it runs in: then nothing of it is here."""

    def release(self) -> None:
        """Let go of threads and workers at once."""

    def entrance(self, name: str) -> Entrance | None:
        """Return the way in to a deployment; None if there is none of this name, or the engine is ending."""

    def manifests(self) -> str:
        """Return the manifests of all deployments by name, as JSON."""

    def metrics(self) -> str:
        """Return all metrics in the Prometheus text format, as of now."""

    def watch(self) -> Watcher:
        """Return the events of the live page. If as many watch as may, the stream of the longest one ends."""

    def failure(self) -> str | None:
        """Return why it has ended, if it did so by itself."""

@final
class Watcher:
    """The events of the live page, for one who watches."""

    def next(self) -> bytes | None:
        """Wait for the next event, up to a second or so; None at the end."""

@final
class Remote:
    """A connection to a server's `listen_programs`, dialled again with back-off whenever it is lost."""

    is_of_worker: bool
    """False: a program calls."""

    def metrics(self) -> None:
        """They are the server's."""

    def __new__(cls, address: str, key: str | None) -> Remote: ...
    def ready(self, timeout_s: float) -> Starting:
        """A connection is there, before this has passed; ValueError unless it is a length above 0."""

    def manifests(self) -> str:
        """Return the manifests of the server's deployments by name, as JSON; {} while there is no connection."""

    def entrance(self, name: str) -> Entrance | None:
        """Return the way in to a deployment of this name."""

    def failure(self) -> None:
        """Return None: a connection never ends by itself."""

    def release(self) -> None:
        """End the connection; calls in flight fail."""

@final
class Asks:
    """The other deployments of the server, as the model of a worker calls them over the link of the worker."""

    is_of_worker: bool
    """True: a model of the server calls."""

    def __new__(cls, link: Link, welcome: str, items: Callable[[], tuple[Sequence[int], Batch | None]]) -> Asks:
        """Make the calls. `items` returns for which items, and their batch; `welcome` is JSON of the front."""

    def manifests(self) -> str:
        """Return the manifests of these deployments by name, as JSON."""

    def entrance(self, name: str) -> Entrance | None:
        """Return the way in to a deployment of this name."""

    def failure(self) -> None:
        """Return None: the worker ends with its server."""

    def metrics(self) -> None:
        """They are the server's."""

    def mailbox(self, event_loop: object) -> Mailbox:
        """Make the mailbox of an event loop."""

    def hold(self) -> None:
        """Let calls wait from now on until `flush`."""

    def flush(self) -> None:
        """Send the calls that wait, in one write."""

_Failed = tuple[str, str, str | None, int | None, float | None]
"""Reason, detail, field, status and seconds after which to come back."""
_Raw = tuple[int, Any, str | None]
"""An answer: (tag, str or bytes or Tensor, media type), (254, [(name, Tensor)], None) or (255, _Failed, None)."""

_Event = _Raw | tuple[int, tuple[str, tuple[int, int] | None, _Raw | None], None]
"""Of an answer in parts: a part or a failure as _Raw, or (252, (reason, usage, the whole answer), None)."""

@final
class Stream:
    """An answer that comes in parts. The item is sent when it is first waited for. Dropping this cancels it."""

    def wait(self) -> list[_Event]:
        """Wait on this thread for what comes next; an empty list if it was cancelled."""

    def cancel(self) -> None:
        """Nobody wants the rest; nothing happens if it has ended."""

@final
class Entrance:
    """The way in to one deployment. Items are (tag, data): str for TAG_TEXT, for TAG_TENSOR a list of (dtype, shape,
    buffer), else an object with a buffer; a large buffer is lent, and must not change until the call has ended.
    """

    def call_and_wait(
        self, tag: int, data: object, timeout_s: float | None, priority: str, request_id: str | None
    ) -> _Raw:
        """Run one item and wait for its answer on this thread, without the interpreter lock."""

    def call_many_and_wait(
        self, items: Sequence[tuple[int, object]], timeout_s: float | None, priority: str, request_id: str | None
    ) -> list[_Raw]:
        """Run the items of one request and wait for all answers, in order."""

    def stream(self, tag: int, data: object, timeout_s: float | None, priority: str, request_id: str | None) -> Stream:
        """Begin one item whose answer comes in parts."""

@final
class Mailbox:
    """The answers that one event loop waits for. The loop watches `fileno` and calls `drain` when it is readable."""

    def __new__(cls, event_loop: object) -> Mailbox: ...
    def fileno(self) -> int: ...
    def __len__(self) -> int:
        """Return the number of calls that are under way."""

    def call(
        self,
        entrance: Entrance,
        tag: int,
        data: object,
        timeout_s: float | None,
        priority: str,
        request_id: str | None,
    ) -> tuple[Future[_Raw], int]:
        """Begin to run one item; returns a future of the loop, and the number by which to cancel."""

    def call_many(
        self,
        entrance: Entrance,
        items: Sequence[tuple[int, object]],
        timeout_s: float | None,
        priority: str,
        request_id: str | None,
    ) -> tuple[Future[list[_Raw]], int]:
        """Begin to run the items of one request."""

    def stream(
        self,
        entrance: Entrance,
        tag: int,
        data: object,
        timeout_s: float | None,
        priority: str,
        request_id: str | None,
    ) -> Stream:
        """Begin one item whose answer comes in parts."""

    def next(self, stream: Stream) -> tuple[Future[list[_Event]], int]:
        """Begin to wait for what comes next of an answer; an empty list if it was cancelled."""

    def wait_for(self, starting: Starting) -> tuple[Future[tuple[int, str] | None], int]:
        """Begin to wait for something that an engine does."""

    def cancel(self, number: int) -> None:
        """Nobody waits for this call any more; nothing happens if it has ended."""

    def fail_all(self, reason: str, detail: str) -> None:
        """End every call that is under way with this failure."""

    def drain(self) -> None:
        """Set the results of the futures whose answers have come."""

TAG_JSON: int
TAG_MSGPACK: int
TAG_TEXT: int
TAG_BYTES: int
TAG_TENSOR: int

def outcomes() -> list[tuple[str, str, int, int, bool, str]]:
    """The table of outcomes: (reason, title, HTTP status, gRPC code, may be retried, whose doing it is)."""

def metrics() -> list[tuple[str, str, list[str], str]]:
    """The table of metrics: (name, kind, labels, help)."""

def live_page() -> str:
    """Return the live page, which reads `live/events` next to itself."""

def reserved_names() -> list[str]:
    """Names that no deployment may have."""

def check_manifest(manifest: str) -> None:
    """Check one manifest (JSON) as a server does before it loads a model; ValueError says what is wrong."""

def check_options(kind: str, options: str) -> None:
    """Parse options (JSON) of `deployment` or `server` as the server would; ValueError says what is wrong."""
