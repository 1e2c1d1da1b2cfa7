"""The loop of a worker: one batch after the other, or decode and encode on threads in parallel where that pays.

All code of the user's runs on the thread that loaded the model, also while batches overlap: `predict`, and validators
and other functions that decoding calls.
"""

import os
import queue
import threading
import traceback
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, Protocol

from jitney.errors import WorkerBroken
from jitney.worker.gauge import Gauge
from jitney.worker.health import IdleCheck
from jitney.worker.replica import BatchState

CRASHED: Final = 70
"""Exit code of a worker whose loop failed: an internal error of jitney's (EX_SOFTWARE)."""


class Source(Protocol):
    """What the loop needs of the link."""

    def next_batch(self, timeout_s: float | None = None) -> Any:
        """Wait for a batch; None is the end. TimeoutError if none has come within these seconds."""
        ...


class Steps(Protocol):
    """What the loop needs of a replica."""

    @property
    def decode_runs_user_code(self) -> bool:
        """Whether decoding calls functions that the user wrote."""
        ...

    def decode(self, batch: Any) -> BatchState:
        """Make what `predict` takes."""
        ...

    def predict(self, state: BatchState, *, overlapped: bool) -> None:
        """Compute; `overlapped` says that the next call may begin before these answers are sent."""
        ...

    def finish(self, state: BatchState) -> None:
        """Encode and send."""
        ...


class Loop:
    """Serves batches until the front says that there are no more."""

    def __init__(  # noqa: PLR0913 -- tests replace what is named
        self,
        link: Source,
        replica: Steps,
        gauge: Gauge | None = None,
        *,
        check: IdleCheck | None = None,
        crash: Callable[[], None] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._link: Final = link
        self._replica: Final = replica
        self._gauge: Final = gauge or Gauge(hides_decode=not replica.decode_runs_user_code)
        self._check: Final = check
        self._crash: Final = crash or _end_process
        self._clock: Final = clock
        self._has_ended = False

    def run(self) -> None:
        """Serve until the end, or until the model is broken, which raises WorkerBroken.

        Any other error in here ends the process at once, on whichever thread: its front would wait for answers.
        """
        self._guard(self._run)

    def _run(self) -> None:
        while not self._has_ended:
            if self._gauge.is_overlapped:
                self._run_overlapped()
            else:
                self._run_serial()

    def _run_serial(self) -> None:
        """Do everything on this thread, until the end or until overlapping promises to pay."""
        while not self._gauge.is_overlapped:
            asked = self._clock()
            batch = self._link.next_batch() if self._check is None else self._next_checked(self._link.next_batch)
            if batch is None:
                self._has_ended = True
                return
            wait_s = self._clock() - asked
            state = self._replica.decode(batch)
            self._replica.predict(state, overlapped=False)
            self._replica.finish(state)
            self._gauge.note_serial(state, wait_s)

    def _run_overlapped(self) -> None:
        """Predict on this thread, decode and finish on a thread each, until the end or until that does not pay."""
        ready: queue.Queue[Any] = queue.Queue(1)
        predicted: queue.Queue[BatchState | None] = queue.Queue(1)
        decodes_here = self._replica.decode_runs_user_code

        def receive() -> None:
            while self._gauge.is_overlapped:
                batch = self._link.next_batch()
                if batch is None:
                    self._has_ended = True
                    break
                ready.put(batch if decodes_here else self._replica.decode(batch))
            ready.put(None)

        def finish() -> None:
            while (state := predicted.get()) is not None:
                self._replica.finish(state)

        threads = [threading.Thread(target=self._guard, args=(step,), daemon=True) for step in (receive, finish)]
        for thread in threads:
            thread.start()
        try:
            while True:
                asked = self._clock()
                received = ready.get() if self._check is None else self._next_checked(lambda s: ready.get(timeout=s))
                if received is None:
                    break
                wait_s = self._clock() - asked
                state: BatchState = self._replica.decode(received) if decodes_here else received
                self._replica.predict(state, overlapped=True)
                predicted.put(state)
                self._gauge.note_overlapped(state, wait_s)
        finally:  # answers of earlier batches are sent also when the worker is broken
            predicted.put(None)
            threads[1].join()
        threads[0].join()

    def _next_checked(self, wait: Callable[[float], Any]) -> Any:
        assert self._check is not None
        return wait_checked(wait, self._check)

    def _guard(self, step: Callable[[], None]) -> None:
        guarded(step, self._crash)


def wait_checked(wait: Callable[[float], Any], check: IdleCheck) -> Any:
    """Wait for what is next; call the model's check whenever it is due and nothing has come by then."""
    while True:
        try:
            return wait(check.due_in_s())
        except (TimeoutError, queue.Empty):
            pass
        # Not in the handler: the traceback of a failing check would begin with the wait.
        check.run()


def guarded(step: Callable[[], None], crash: Callable[[], None] | None = None) -> None:
    """Run a loop of the worker. An error of the loop itself ends the process: its front would wait for answers."""
    try:
        step()
    except WorkerBroken:
        raise
    except BaseException:
        traceback.print_exc()
        (crash or _end_process)()


def _end_process() -> None:
    """End without exit handlers and without waiting for threads of the model's."""
    os._exit(CRASHED)
