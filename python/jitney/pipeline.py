"""The loop of a worker: one batch after the other, or decode and encode on threads beside `predict` when that pays.

`predict` always runs on the thread that loaded the model. What the three steps do is the replica's business.
"""

import os
import queue
import threading
import traceback
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from jitney.replica import Trip

ALPHA = 0.1
"""Weight of the newest batch in the means."""
SETTLED = 16
"""Batches before the means are believed."""


class Source(Protocol):
    """What the loop needs of the link."""

    def next_batch(self) -> Any:
        """Wait for a batch; None is the end."""
        ...


class Steps(Protocol):
    """What the loop needs of a replica."""

    def decode(self, batch: Any) -> Trip:
        """Make what `predict` takes."""
        ...

    def predict(self, trip: Trip, *, overlapped: bool) -> None:
        """Compute; `overlapped` says that the next call may begin before these answers are sent."""
        ...

    def finish(self, trip: Trip) -> None:
        """Encode and send."""
        ...


class Gauge:
    """Measures the steps and says whether to overlap them.

    Two threads pay when a batch takes long enough to hide them, batches follow each other, and there is something
    to hide. Whether it *has* paid is judged by predict's own time, compared with whole batches of like size done one
    by one: the threads' steps are free if they do not slow `predict` (they fight for the interpreter lock) by more.
    """

    def __init__(self) -> None:
        self.is_overlapped = False
        self._seen = 0
        self._predict_s = self._beside_s = self._wait_s = 0.0
        self._serial_s: dict[int, float] = {}
        self._gained_s = 0.0
        self._judged = 0
        self._pause = SETTLED

    def note(self, trip: Trip, wait_s: float) -> None:
        """Learn from one batch, and decide anew."""
        self._seen += 1
        self._predict_s = _mean(self._predict_s, trip.predict_s)
        self._wait_s = _mean(self._wait_s, min(wait_s, 4 * trip.predict_s))  # one long silence is soon forgotten
        size = len(trip.ids).bit_length()
        if self.is_overlapped:
            if size in self._serial_s:
                self._gained_s += self._serial_s[size] - trip.predict_s
                self._judged += 1
            self._reconsider()
        else:
            self._beside_s = _mean(self._beside_s, trip.decode_s + trip.encode_s)
            whole = trip.decode_s + trip.predict_s + trip.encode_s
            self._serial_s[size] = _mean(self._serial_s.get(size, whole), whole)
            self._consider()

    def _consider(self) -> None:
        pays = self._predict_s >= 1e-3 and self._beside_s >= 0.01 * self._predict_s
        if self._seen >= self._pause and pays and self._wait_s < self._predict_s:
            self._switch(overlapped=True)

    def _reconsider(self) -> None:
        if self._judged >= 2 * SETTLED:
            if self._gained_s < 0:
                self._switch(overlapped=False)
                self._pause = min(self._pause * 4, 1 << 16)
                return
            self._gained_s, self._judged = 0.0, 0
        # Half and twice the thresholds above, so that a load on the edge does not flap.
        if self._seen >= SETTLED and (self._predict_s < 0.5e-3 or self._wait_s > 2 * self._predict_s):
            self._switch(overlapped=False)

    def _switch(self, *, overlapped: bool) -> None:
        self.is_overlapped = overlapped
        self._seen = self._judged = 0
        self._gained_s = 0.0


def _mean(old: float, new: float) -> float:
    return new if old == 0.0 else old + ALPHA * (new - old)


def run(link: Source, replica: Steps, gauge: Gauge | None = None, crash: Callable[[], None] | None = None) -> None:
    """Serve batches until the front says that it was the last."""
    gauge = gauge or Gauge()
    while True:
        ended = (
            _overlapped(link, replica, gauge, crash or _crash) if gauge.is_overlapped else _serial(link, replica, gauge)
        )
        if ended:
            return


def _serial(link: Source, replica: Steps, gauge: Gauge) -> bool:
    """Do everything here, until the end (True) or until overlapping promises to pay (False)."""
    while not gauge.is_overlapped:
        asked = perf_counter()
        batch = link.next_batch()
        if batch is None:
            return True
        wait_s = perf_counter() - asked
        trip = replica.decode(batch)
        replica.predict(trip, overlapped=False)
        replica.finish(trip)
        gauge.note(trip, wait_s)
    return False


def _overlapped(link: Source, replica: Steps, gauge: Gauge, crash: Callable[[], None]) -> bool:
    """Predict here, decode and finish on a thread each; returns as `_serial` does."""
    decoded: queue.Queue[Trip | None] = queue.Queue(1)
    predicted: queue.Queue[Trip | None] = queue.Queue(1)
    has_ended = False

    def decode() -> None:
        nonlocal has_ended
        while gauge.is_overlapped:
            batch = link.next_batch()
            if batch is None:
                has_ended = True
                break
            decoded.put(replica.decode(batch))
        decoded.put(None)

    def finish() -> None:
        while (trip := predicted.get()) is not None:
            replica.finish(trip)

    threads = [threading.Thread(target=_guarded, args=(step, crash), daemon=True) for step in (decode, finish)]
    for thread in threads:
        thread.start()
    while True:
        asked = perf_counter()
        trip = decoded.get()
        wait_s = perf_counter() - asked
        if trip is None:
            break
        replica.predict(trip, overlapped=True)
        predicted.put(trip)
        gauge.note(trip, wait_s)
    predicted.put(None)
    for thread in threads:
        thread.join()
    return has_ended


def _guarded(step: Callable[[], None], crash: Callable[[], None]) -> None:
    try:
        step()
    except BaseException:
        traceback.print_exc()
        crash()


def _crash() -> None:
    os._exit(70)
