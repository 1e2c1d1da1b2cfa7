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
"""Weight of the newest batch in what is learned."""
TRIAL = 32
"""Overlapped batches before it is judged whether they paid."""


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

    Two threads promise to pay for a batch that takes long enough to hide them, has something to hide, and was there
    when the one before was done: what came later could not have been decoded sooner, and copies of answers and two
    switches of threads would only delay the users whose next requests it is made of. What counts is the share of such
    batches, so that one stall of the machine changes nothing. Whether they *have* paid is judged by predict's own
    time, compared with whole batches of like size done one by one: the threads' steps are free only if they do not
    slow `predict` (they fight for the interpreter lock) by more.
    """

    def __init__(self) -> None:
        self.is_overlapped = False
        self._share = 0.0
        self._serial_s: dict[int, float] = {}
        self._gained_s = 0.0
        self._judged = 0
        self._since_switch = 0
        self._pause = 0

    def note(self, trip: Trip, wait_s: float) -> None:
        """Learn from one batch, and decide anew."""
        self._since_switch += 1
        size = len(trip.ids).bit_length()
        if self.is_overlapped:
            # Half of what it takes to begin, so that a load on the edge does not flap.
            # Who was not there is waited for until he is decoded.
            self._learn(trip.predict_s >= 0.5e-3 and wait_s < trip.decode_s)
            self._reconsider(size, trip.predict_s)
        else:
            beside_s = trip.decode_s + trip.encode_s
            whole_s = trip.predict_s + beside_s
            before_s = self._serial_s.get(size, whole_s)
            self._serial_s[size] = before_s + ALPHA * (whole_s - before_s)
            self._learn(trip.predict_s >= 1e-3 and beside_s >= 0.01 * trip.predict_s and wait_s < 0.5 * beside_s)
            if self._share > 0.8 and self._since_switch > self._pause:
                self._switch(overlapped=True)

    def _learn(self, promises: bool) -> None:
        self._share += ALPHA * (promises - self._share)

    def _reconsider(self, size: int, predict_s: float) -> None:
        if size in self._serial_s:
            self._gained_s += self._serial_s[size] - predict_s
            self._judged += 1
        if self._judged >= TRIAL:
            if self._gained_s < 0:
                self._pause = min(max(2 * TRIAL, self._pause * 4), 1 << 16)
                self._switch(overlapped=False)
                return
            self._gained_s, self._judged = 0.0, 0
        if self._share < 0.4:
            self._switch(overlapped=False)

    def _switch(self, *, overlapped: bool) -> None:
        self.is_overlapped = overlapped
        self._share = float(overlapped)
        self._since_switch = self._judged = 0
        self._gained_s = 0.0


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
