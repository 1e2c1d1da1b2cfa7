"""What a model counts itself: its metrics are on the server's `/metrics`, with the label `deployment`.

```python
words = jitney.counter("words_total", "Words that were read.", language=("en", "de"))

@jitney.deployment
class Reader:
    def predict(self, texts: list[str]) -> list[int]:
        words.inc(sum(len(text.split()) for text in texts), language="en")
        ...
```

Labels and their values are declared, so that no client can make a server keep ever more series. A worker sends what it
has counted once a second, and at its end. If it is killed, the counts of its last second are lost. In a program that
has no engine, such as a unit test, nothing is sent.
"""

import json
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import isfinite
from typing import Any, TypeVar

from jitney.errors import ConfigError

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The buckets of a histogram that names none, for durations in seconds."""
MOST_SERIES = 100
"""Most combinations of label values of one metric."""
MOST_BUCKETS = 50
EVERY_S = 1.0
"""How often a worker sends."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("jitney_", "process_")
_ENDINGS = ("_total", "_bucket", "_sum", "_count")
"""What the samples of a histogram end in, and those of counters."""
_RESERVED_LABELS = {"deployment", "replica", "le", "job", "instance"}

_lock = threading.Lock()
_measures: "dict[str, _Measure]" = {}


class _Measure:
    kind = ""

    def __init__(self, name: str, meaning: str, labels: Mapping[str, Sequence[str]]) -> None:
        self.name, self.meaning = name, meaning
        self._labels = {label: tuple(values) for label, values in labels.items()}
        self._changed: dict[tuple[str, ...], Any] = {}

    def _series(self, given: Mapping[str, str]) -> tuple[str, ...]:
        """Return the label values in their order; raises ValueError if they are not those that were declared."""
        if given.keys() != self._labels.keys():
            wanted = ", ".join(self._labels) or "none"
            raise ValueError(f"{self.name}: its labels are {wanted}, and {', '.join(given) or 'none'} were given")
        for label, values in self._labels.items():
            if given[label] not in values:
                known = ", ".join(map(repr, values))
                raise ValueError(f"{self.name}: {given[label]!r} was not declared as a value of {label}: {known}")
        return tuple(given[label] for label in self._labels)

    def definition(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "help": self.meaning, "labels": list(self._labels)}

    def take(self) -> list[dict[str, Any]]:
        """Return what was added since the last time."""
        changed, self._changed = self._changed, {}
        return [{"labels": list(series), **self._as_json(value)} for series, value in changed.items()]

    def _as_json(self, value: Any) -> dict[str, Any]:
        raise NotImplementedError


class Counter(_Measure):
    """A number that only grows."""

    kind = "counter"

    def inc(self, amount: float = 1.0, **labels: str) -> None:
        """Add an amount, which is not negative. Raises ValueError for labels that were not declared."""
        if not (isfinite(amount) and amount >= 0):
            raise ValueError(f"{self.name}: a counter only grows, and {amount!r} was added")
        series = self._series(labels)
        with _lock:
            total = self._changed.get(series, 0.0) + float(amount)
            if not isfinite(total):
                raise ValueError(f"{self.name}: {amount!r} makes it larger than a number can be")
            self._changed[series] = total

    def _as_json(self, value: float) -> dict[str, Any]:
        return {"value": value, "counts": []}


class Histogram(_Measure):
    """A distribution of values over buckets."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, labels: Mapping[str, Sequence[str]], buckets: Sequence[float]) -> None:
        super().__init__(name, meaning, labels)
        self._buckets = tuple(map(float, buckets))

    def observe(self, value: float, **labels: str) -> None:
        """Count a value, which is not negative. Raises ValueError for labels that were not declared."""
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{self.name}: a histogram counts finite values from 0 on, and {value!r} was observed")
        series = self._series(labels)
        with _lock:
            counts, total = self._changed.get(series) or ([0] * (len(self._buckets) + 1), 0.0)
            if not isfinite(total + float(value)):
                raise ValueError(f"{self.name}: {value!r} makes its sum larger than a number can be")
            counts[bisect_left(self._buckets, value)] += 1
            self._changed[series] = (counts, total + float(value))

    def definition(self) -> dict[str, Any]:
        """Return what the front must know of it."""
        return super().definition() | {"buckets": list(self._buckets)}

    def _as_json(self, value: tuple[list[int], float]) -> dict[str, Any]:
        counts, total = value
        return {"value": total, "counts": counts}


M = TypeVar("M", bound=_Measure)


def counter(name: str, meaning: str, **labels: Sequence[str]) -> Counter:
    """Declare a counter of this model's; its name ends in `_total`. Each label has the values that it may have.

    The same declaration again returns the same counter. Raises ConfigError for names and labels that cannot be.
    """
    if not name.endswith("_total") or name == "_total":
        raise ConfigError(f"counter {name!r}: the name of a counter ends in _total, as in {name}_total")
    return _declare(Counter(name, meaning, _checked(name, meaning, labels)))


def histogram(name: str, meaning: str, *, buckets: Iterable[float] = SECONDS, **labels: Sequence[str]) -> Histogram:
    """Declare a histogram of this model's. `buckets` are upper bounds, ascending; each label has its possible values.

    The same declaration again returns the same histogram. Raises ConfigError for what cannot be.
    """
    bounds = [float(bound) for bound in buckets]
    is_ascending = bounds == sorted(set(bounds)) and all(map(isfinite, bounds)) and min(bounds, default=0) >= 0
    if not 0 < len(bounds) <= MOST_BUCKETS or not is_ascending:
        raise ConfigError(
            f"histogram {name!r}: buckets are 1 to {MOST_BUCKETS} finite numbers from 0 on, ascending: {bounds}"
        )
    if name.endswith(_ENDINGS):
        raise ConfigError(f"histogram {name!r}: its name cannot end in {' or '.join(_ENDINGS)}")
    return _declare(Histogram(name, meaning, _checked(name, meaning, labels), bounds))


def _checked(name: str, meaning: str, labels: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    if not _NAME.fullmatch(name) or name.startswith(_RESERVED):
        raise ConfigError(
            f"metric {name!r}: a name has letters, digits and underlines, and does not begin with "
            f"{' or '.join(_RESERVED)}"
        )
    for label, values in labels.items():
        if label in _RESERVED_LABELS or label.startswith("__"):
            raise ConfigError(f"metric {name!r}: the label {label!r} is taken; use another name")
        is_list = not isinstance(values, str) and all(isinstance(value, str) for value in values)
        if not is_list or not values:
            raise ConfigError(f"metric {name!r}: {label} needs the values that it may have, as in {label}=('a', 'b')")
    for text in (meaning, *(value for values in labels.values() for value in values)):
        if not _is_utf8(text):
            raise ConfigError(f"metric {name!r}: {text!r} cannot be written as UTF-8")
    if (series := len(list(product(*labels.values())))) > MOST_SERIES:
        raise ConfigError(f"metric {name!r}: its labels make {series} series; at most {MOST_SERIES} are allowed")
    return labels


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _declare(measure: M) -> M:
    family = measure.name.removesuffix("_total")
    with _lock:
        twins = [name for name in _measures if name != measure.name and name.removesuffix("_total") == family]
        if twins:
            raise ConfigError(f"metric {measure.name!r}: {twins[0]!r} has the same name without _total")
        known = _measures.setdefault(measure.name, measure)
    if known.definition() != measure.definition() or known._labels != measure._labels:  # pyright: ignore[reportPrivateUsage]
        raise ConfigError(f"metric {measure.name!r} is declared twice, with different meanings, labels or buckets")
    return known  # pyright: ignore[reportReturnType] - an equal definition is of the same class


def is_used() -> bool:
    """Say whether this program has declared any metric."""
    return bool(_measures)


def take() -> bytes | None:
    """Return what was counted since the last time, as a worker sends it; None if nothing was."""
    with _lock:
        found = [(measure.definition(), measure.take()) for measure in _measures.values()]
    changed = [definition | {"series": series} for definition, series in found if series]
    return json.dumps(changed).encode() if changed else None


class Measuring:
    """Sends what a worker has counted, once a second, from a thread; without metrics there is no thread."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._ends = threading.Event()

    def start(self) -> None:
        """Begin to send. Called when the model is loaded and warm: what it counted until now was for no request."""
        take()
        if is_used():
            threading.Thread(target=self._run, name="jitney-measures", daemon=True).start()

    def end(self) -> None:
        """Send what is left."""
        self._ends.set()
        self._flush()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            self._flush()

    def _flush(self) -> None:
        changed = take()
        if changed is not None:
            with suppress(OSError):  # the link is lost: the worker ends, or has another one soon
                self._send(changed)
