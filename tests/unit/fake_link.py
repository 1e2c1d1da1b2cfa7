"""A link, batches and results in memory, as strict as the real ones: every item must get exactly one outcome."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jitney.worker.gauge import Gauge
from jitney.worker.replica import BatchState

TAG_JSON, TAG_MSGPACK, TAG_TEXT, TAG_BYTES, TAG_TENSOR = range(5)


@dataclass
class Outcome:
    reason: str
    detail: str = ""
    field: str | None = None
    status: int | None = None
    retry_after_s: float | None = None
    value: Any = None


class FakeTensor:
    """Arrays received; numpy reads it through the buffer protocol of the bytes it holds."""

    def __init__(self, array: np.ndarray, *, stacked: bool) -> None:
        self.array = np.ascontiguousarray(array)
        self.dtype = str(array.dtype)
        self.shape = array.shape
        self.stacked = stacked


@dataclass
class FakeBatch:
    id: int
    items: list[Any]
    tag: int = TAG_TEXT
    encoding: int = TAG_JSON
    unwanted: set[int] = field(default_factory=set[int])
    expired: set[int] = field(default_factory=set[int])
    method: str = ""
    has_left_out: bool = False
    trace: str = ""
    takes_parts: set[int] = field(default_factory=set[int])

    @property
    def request_ids(self) -> list[str]:
        return [""] * len(self.ids)

    def metadata(self) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
        return [(f"r-{index}", "", "team", [("x-tenant", str(item))]) for index, item in enumerate(self.items)]

    @property
    def ids(self) -> list[int]:
        return [self.id * 1_000 + index for index in range(len(self.items))]

    @property
    def streams(self) -> list[bool]:
        return [index in self.takes_parts for index in range(len(self.items))]

    @property
    def tags(self) -> list[int]:
        return [self.tag] * len(self.items)

    @property
    def encodings(self) -> list[int]:
        return [self.encoding] * len(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def wanted(self) -> list[bool]:
        return [index not in self.unwanted | self.expired for index in range(len(self.items))]

    def cancelled(self) -> list[bool]:
        return [index in self.unwanted for index in range(len(self.items))]

    def values(self) -> list[Any]:
        return list(self.items)


class FakeResults:
    def __init__(self, batch: FakeBatch, max_answer_bytes: int | None = None) -> None:
        self.batch = batch
        self.max_answer_bytes = max_answer_bytes
        self.outcomes: dict[int, Outcome] = {}
        self.arrays: dict[int, dict[str, Any]] = {}
        self.ends: dict[int, tuple[str, tuple[int, int] | None]] = {}
        self.of_parts: FakeParts = FakeParts(self)

    def too_large(self) -> list[int]:
        return []

    def parts(self) -> "FakeParts":
        return self.of_parts

    def end(self, index: int, reason: str, usage: tuple[int, int] | None = None) -> None:
        assert index not in self.ends, f"item {index} ends twice"
        self.ends[index] = (reason, usage)
        if index not in self.outcomes and index not in self.arrays:
            self._once(index, Outcome("ok"))

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        assert len(indices) == len(data)
        for index, value in zip(indices, data, strict=True):
            assert isinstance(value, (bytes, bytearray, memoryview)), value
            self._once(index, Outcome("ok", value=(tag, bytes(value), media_type)))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: object) -> None:
        view = memoryview(data).cast("B")  # pyright: ignore[reportArgumentType]
        array = np.frombuffer(view, dtype).reshape(len(indices), *row_shape)
        for index, row in zip(indices, array, strict=True):
            assert index not in self.outcomes, f"two outcomes for item {index}"
            rows = self.arrays.setdefault(index, {})
            assert name not in rows
            rows[name] = row  # not copied, as in the real one

    def error(self, index: int, *told: Any) -> None:
        self.arrays.pop(index, None)  # an error replaces what was written of an item
        self._once(index, Outcome(*told))

    def later(self, index: int) -> None:
        self._once(index, Outcome("later"))

    def _once(self, index: int, outcome: Outcome) -> None:
        assert 0 <= index < len(self.batch)
        assert index not in self.outcomes and index not in self.arrays, f"two outcomes for item {index}"
        self.outcomes[index] = outcome

    def final(self) -> list[Outcome]:
        for index, rows in self.arrays.items():
            copied = {name: np.array(row) for name, row in rows.items()}
            self.outcomes[index] = Outcome("ok", value=copied[""] if list(copied) == [""] else copied)
        assert sorted(self.outcomes) == list(range(len(self.batch))), "every item has exactly one outcome"
        return [self.outcomes[index] for index in range(len(self.batch))]


class FakeParts:
    """Where parts are written."""

    def __init__(self, results: FakeResults) -> None:
        self._results = results
        self.said: list[tuple[int, Any]] = []
        """The items and what their parts were, in order."""

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        del media_type
        for index, value in zip(indices, data, strict=True):
            self._add(index, bytes(value).decode() if tag == TAG_TEXT else bytes(value))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: object) -> None:
        del name
        array = np.frombuffer(memoryview(data).cast("B"), dtype)  # pyright: ignore[reportArgumentType]
        for index, row in zip(indices, array.reshape(len(indices), *row_shape), strict=True):
            self._add(index, row.tolist())

    def error(self, index: int, *verdict: Any) -> None:
        self._results.error(index, *verdict)

    def _add(self, index: int, part: Any) -> None:
        assert index not in self._results.outcomes, f"a part of item {index} after its end"
        self.said.append((index, part))


class AlwaysOverlapped(Gauge):
    """A gauge that never switches."""

    def __init__(self) -> None:
        super().__init__()
        self.is_overlapped = True

    def note_overlapped(self, state: BatchState, wait_s: float) -> None:
        pass


class FakeLink:
    """Hands out batches, then None; notes what comes back and in what order."""

    def __init__(
        self, batches: Sequence[FakeBatch | TimeoutError] = (), messages: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        self.batches = deque(batches)
        self.messages = deque(messages)
        self.sent: list[tuple[str, bytes]] = []
        self.loaded: list[bytes] = []
        """What the worker keeps when its link is lost."""
        self.begun: list[int] = []
        self.finished: list[int] = []
        self.sent_early: list[list[int]] = []
        """The items of each send of outcomes before the end of a batch."""
        self.outcomes: dict[int, list[Outcome]] = {}
        self.said: dict[int, list[tuple[int, Any]]] = {}
        """The parts of each batch."""
        self.ends: dict[int, dict[int, tuple[str, tuple[int, int] | None]]] = {}
        self.durations: list[tuple[float, float, float]] = []
        self.clean: list[bool] = []
        self.out_of_memory: list[bool] = []
        self.finish_threads: set[str] = set()
        self.arrives_at_once = True
        """Whether what comes is there already, for a worker that takes what has arrived."""
        self.frames: list[list[tuple[int, int]]] = []
        """Of each frame of items that joined: the batch and the index of each item that ended with it."""
        self.joined = 0
        self._results: list[FakeResults] = []
        self.asking_items: list[int] = []
        """Items whose model waits for what it asked."""
        self.stopped: list[int] = []
        """Items that are paused."""
        self.on_wait: Callable[[], None] = self.stopped.clear
        """Called when the worker waits because of them."""
        self.waits = 0
        self._changes = 0
        self._stopped_before: list[int] = []

    def send(self, kind: str, body: bytes) -> None:
        self.sent.append((kind, body))

    def keep(self, loaded: bytes) -> None:
        self.loaded.append(loaded)

    def paused(self) -> list[int]:
        return list(self.stopped)

    def asking(self) -> list[int]:
        return list(self.asking_items)

    def changes(self) -> int:
        if self.stopped != self._stopped_before:
            self._stopped_before = list(self.stopped)
            self._changes += 1
        return self._changes

    def wait_for_change(self, changes: int, timeout_s: float) -> None:
        assert changes == self._changes and 0 < timeout_s <= 1
        self.waits += 1
        self.on_wait()

    def receive(self) -> tuple[str, bytes]:
        return self.messages.popleft()

    def next_batch(self, timeout_s: float | None = None) -> FakeBatch | None:
        del timeout_s
        batch = self.batches.popleft() if self.batches else None
        if isinstance(batch, TimeoutError):
            raise batch
        return batch

    def take(self) -> tuple[FakeBatch | None, bool]:
        if not self.arrives_at_once:
            return None, True
        batch = self.next_batch()
        return batch, batch is not None

    def send_step(self, batches: Sequence[FakeResults], active: int, joined: int, step_s: float, join_s: float) -> None:
        assert (active, step_s, join_s) == (0, 0.0, 0.0), "there are no steps"
        self.joined += joined
        self._results += [results for results in batches if results not in self._results]
        before = {ended for frame in self.frames for ended in frame}
        ended = {(one.batch.id, index) for one in self._results for index in (*one.outcomes, *one.arrays)}
        self.frames.append(sorted(ended - before))
        for results in self._results:
            self.said[results.batch.id] = list(results.of_parts.said)
            self.ends[results.batch.id] = results.ends
            if {*results.outcomes, *results.arrays} == set(range(len(results.batch))):
                self.outcomes[results.batch.id] = results.final()

    def started(self, batch: FakeBatch) -> None:
        self.begun.append(batch.id)

    def send_results(self, results: FakeResults, predict_s: float = 0.0) -> None:
        del predict_s
        before = {index for some in self.sent_early for index in some}
        self.sent_early.append(sorted({*results.outcomes, *results.arrays} - before))

    def finish(  # noqa: PLR0917 -- as the link has it
        self,
        results: FakeResults,
        decode_s: float,
        predict_s: float,
        encode_s: float,
        clean: bool = True,
        out_of_memory: bool = False,
    ) -> None:
        assert results.batch.id not in self.outcomes, "a batch is finished once"
        self.finished.append(results.batch.id)
        self.said[results.batch.id] = list(results.of_parts.said)
        self.ends[results.batch.id] = results.ends
        self.outcomes[results.batch.id] = results.final()
        self.durations.append((decode_s, predict_s, encode_s))
        self.clean.append(clean)
        self.out_of_memory.append(out_of_memory)
        self.finish_threads.add(threading.current_thread().name)
