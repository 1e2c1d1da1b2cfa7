"""Whether the model of this worker can still compute anything, or the worker has to be replaced."""

import re
import time
import traceback
from collections.abc import Callable
from typing import Final

from jitney.errors import NOT_NOW, InvalidInput, WorkerBroken, was_asked
from jitney.failures import one_line
from jitney.worker.memory import is_out_of_memory

FAILED_BATCHES: Final = 8
"""So many failed batches in a row replace a worker that has no input to test itself with."""

_PERMANENT: Final = re.compile(
    r"(CUDA|HIP)[^\n]*("
    r"device-side assert|illegal memory access|launch failure|illegal instruction|misaligned address"
    r"|invalid program counter|hardware stack error|address space|uncorrectable ECC|launch timed out|device is lost)"
    r"|(CUDA_ERROR_|cudaError|hipError)_?"
    r"(ASSERT|ILLEGAL_?ADDRESS|LAUNCH_?FAIL|ILLEGAL_?INSTRUCTION|MISALIGNED_?ADDRESS|HARDWARE_?STACK|ECC_?UNCORRECT)",
    re.IGNORECASE,
)
"""Texts of CUDA and HIP errors after which every later call of the process fails too."""

Place = tuple[type[BaseException], str, int]
"""A kind of failure: the type of the exception, and the file and the line that raised it."""


def is_permanent(error: BaseException) -> bool:
    """Whether an error is one of the CUDA errors that no later call survives. Never raises."""
    if not isinstance(error, Exception):
        return False
    is_of_library = isinstance(error, RuntimeError) or type(error).__module__.startswith(("onnxruntime", "jaxlib"))
    try:
        return is_of_library and _PERMANENT.search(str(error)) is not None
    except Exception:
        return False


def raise_if_permanent(error: BaseException, method: str = "predict") -> None:
    """Raise WorkerBroken if an error of this method says that this process can compute nothing any more."""
    if isinstance(error, WorkerBroken):
        raise error
    if is_permanent(error):
        raise WorkerBroken(f"{method} raised {one_line(error)}: this process can compute nothing any more") from error


def place(error: BaseException) -> Place:
    """Return the kind of a failure."""
    frames = list(traceback.walk_tb(error.__traceback__))
    file, line = (frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else ("", 0)
    return type(error), file, line


class IdleCheck:
    """Calls the model's own `check` while no batch waits, and at most once in an interval."""

    def __init__(
        self, check: Callable[[], object], interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._check: Final = check
        self._interval_s: Final = interval_s
        self._clock: Final = clock
        self._due = clock() + interval_s

    def due_in_s(self) -> float:
        """Return the seconds until the next call."""
        return max(0.0, self._due - self._clock())

    def run(self) -> None:
        """Call it; raises WorkerBroken if it raises, or returns False."""
        try:
            is_good = self._check() is not False
        except BaseException as error:
            raise WorkerBroken(f"the model's check raised {one_line(error)}") from error
        if not is_good:
            raise WorkerBroken("the model's check returned False")
        self._due = self._clock() + self._interval_s


class Health:
    """Counts the batches for which `predict` failed throughout, and tests the model before it is called broken.

    Inputs may be the cause of such a batch. So after the second one in a row, the fourth, the eighth and so on,
    `predict` is called with an input that it is known to answer. If that fails too, the worker is broken.
    """

    def __init__(self) -> None:
        self.test: Callable[[], object] | None = None
        """Calls `predict` with an input that it has answered before; None while there is none."""
        self._failed = 0
        self._last: Place | None = None

    def answered(self) -> None:
        """Note that `predict` returned for at least one item of a batch."""
        self._failed, self._last = 0, None

    def is_down(self, error: BaseException) -> bool:
        """Whether the last batch failed throughout in the same place, and an input that was answered before fails too.

        Only that input shows it: a client may send a batch whose items all fail, and its neighbours must not suffer.
        """
        if self.test is None or self._last is None or self._last != place(error):
            return False
        try:
            self.test()
        except BaseException as failed:
            return not was_asked(failed)
        return False

    def failed(self, error: BaseException, items: int, method: str = "predict") -> None:
        """Note that this method failed for all items of a batch; raises WorkerBroken if the model is the cause."""
        if self.note_failure(error, items, method):
            self.run_test()

    def note_failure(self, error: BaseException, items: int, method: str) -> bool:
        """Do the same as `failed` without the test of the model; returns whether the test is due."""
        if isinstance(error, (InvalidInput, *NOT_NOW)) or was_asked(error) or is_out_of_memory(error):
            return False
        self._failed += 1
        self._last = place(error) if items > 1 else self._last
        if self.test is None and self._failed >= FAILED_BATCHES:
            raise WorkerBroken(f"{method} failed for {self._failed} batches in a row: {one_line(error)}") from error
        return self.test is not None and self._failed > 1 and self._failed & (self._failed - 1) == 0

    def run_test(self) -> None:
        """Call `predict` with an input that it has answered before; raises WorkerBroken if it fails."""
        assert self.test is not None
        try:
            self.test()
        except BaseException as error:
            if was_asked(error):
                return  # another model failed, which says nothing about this one
            raise WorkerBroken(f"the model fails for an input that it answered before: {one_line(error)}") from error
