"""Decides whether decoding and encoding run on threads next to `predict`: only while that makes batches faster."""

from typing import Final

from jitney.worker.replica import BatchState

ALPHA: Final = 0.1
"""Weight of the newest batch in a learned average."""
TRIAL: Final = 32
"""Overlapped batches after which their gain is judged."""
LONGEST_PAUSE: Final = 1 << 16
"""Batches, at most, until overlapping is tried again after it did not pay."""


class Gauge:
    """Learns from the durations of batches whether to overlap them.

    Overlapping promises to pay while most batches take long enough to hide something, have something to hide, and were
    there when the batch before was done. A batch that arrives later cannot be decoded sooner; copies of answers and
    two switches of threads would only delay the users who send the next requests. The share of such batches counts, so
    that one stall of the machine changes nothing.

    Whether overlapping has paid is judged by the time that the main thread took, compared with whole batches of like
    size that ran one by one: the two threads compete with `predict` for the interpreter lock.
    """

    def __init__(self, *, hides_decode: bool = True) -> None:
        """`hides_decode` is False if items are decoded on the main thread in any case."""
        self.is_overlapped = False
        self._hides_decode: Final = hides_decode
        self._share = 0.0
        self._serial_s: dict[int, float] = {}
        """Seconds of a whole batch that ran alone, by the bit length of its number of items."""
        self._gain_s = 0.0
        self._judged = 0
        self._since_switch = 0
        self._pause = 0

    def note_serial(self, state: BatchState, wait_s: float) -> None:
        """Learn from a batch that ran alone and is finished; `wait_s` is how long the worker waited for it."""
        if not state.is_clean:
            return
        self._since_switch += 1
        hidden_s = state.encode_s + (state.decode_s if self._hides_decode else 0.0)
        whole_s = state.decode_s + state.predict_s + state.encode_s
        size = _size(state)
        average_s = self._serial_s.get(size, whole_s)
        self._serial_s[size] = average_s + ALPHA * (whole_s - average_s)
        self._learn(state.predict_s >= 1e-3 and hidden_s >= 0.01 * state.predict_s and wait_s < 0.5 * hidden_s)
        if self._share > 0.8 and self._since_switch > self._pause:
            self._switch(overlapped=True)

    def note_overlapped(self, state: BatchState, wait_s: float) -> None:
        """Learn from a batch whose answers another thread may still encode: `encode_s` is not known yet."""
        if not state.is_clean or not self.is_overlapped:
            return
        self._since_switch += 1
        # Half of what it takes to begin, so that a load on the edge does not switch back and forth. The worker waits
        # for a batch that arrived late until it is decoded.
        self._learn(state.predict_s >= 0.5e-3 and wait_s < state.decode_s)
        serial_s = self._serial_s.get(_size(state))
        if serial_s is not None:
            self._gain_s += serial_s - state.predict_s - (0.0 if self._hides_decode else state.decode_s)
            self._judged += 1
        if self._judged >= TRIAL and self._gain_s < 0:
            self._pause = min(max(2 * TRIAL, self._pause * 4), LONGEST_PAUSE)
            self._switch(overlapped=False)
        elif self._share < 0.4:
            self._switch(overlapped=False)
        elif self._judged >= TRIAL:
            self._gain_s, self._judged = 0.0, 0

    def _learn(self, promises: bool) -> None:
        self._share += ALPHA * (promises - self._share)

    def _switch(self, *, overlapped: bool) -> None:
        self.is_overlapped = overlapped
        self._share = float(overlapped)
        self._since_switch = self._judged = 0
        self._gain_s = 0.0


def _size(state: BatchState) -> int:
    return len(state.ids).bit_length()
