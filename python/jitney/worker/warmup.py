"""Before a replica serves: what is built at the first call is built, and what batches take is measured."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TypeVar

from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import ConfigError, JitneyError, OutOfMemory
from jitney.failures import one_line, printable
from jitney.worker.memory import is_out_of_memory, let_go
from jitney.worker.streams.whole import Endless, most_test_s, whole

Value = TypeVar("Value")

SLOW_WARM_UP_S = 5.0
"""A full batch is tried out only if one item alone, times the size of the batch, promises to take less."""
SLOW_PROFILE_S = 2.0
"""All sizes are measured only if that promises to take less."""
LONGEST_ANSWER_S = 60.0
"""Longest wait for the end of one answer in parts: all steps that it needs have been made by then."""


def warm_up(  # noqa: PLR0913 -- each is another part of the worker
    predict: Callable[..., object],
    codec: Codec,
    options: DeploymentOptions,
    examples: Sequence[object],
    say: Callable[[str], None],
    *,
    method: str = "predict",
) -> list[tuple[int, float]]:
    """Call `predict` on an example, on a full batch of it, and if they are quick on batches of 2, 4, … of it.

    Batches of one example, because different ones need not belong to one group. Returns (size, seconds), each of
    a second call: a model may compile for a size when it first sees it. Without examples nothing is called.

    Sizes that are too much for the memory of the device are left out, and `say` gets a line about it: such batches are
    computed in parts when they come, so the replica serves all the same. So it does if an answer in parts does not end.
    """
    if not examples:
        return []
    for example in examples:
        for _, error in codec.from_python([example]).errors:
            raise ConfigError(not_taken(example, error, method)) from error.__cause__

    def run(size: int) -> float:
        return try_out(predict, codec, [examples[0]] * size)

    curve: list[tuple[int, float]] = []
    try:
        _measure_all(run, options, curve, say)
    except Endless as error:
        say(f"the warm-up was cut short: {error}")
    return curve


def _measure_all(
    run: Callable[[int], float], options: DeploymentOptions, curve: list[tuple[int, float]], say: Callable[[str], None]
) -> None:
    first_s, alone_s = alone(lambda: run(1)), alone(lambda: run(1))
    curve.append((1, alone_s))
    most = options.max_batch_size
    if not options.batched or most == 1 or min(first_s, alone_s) * most > SLOW_WARM_UP_S:
        return
    largest, full_s = largest_that_fits(run, most)
    if 4 * full_s <= SLOW_PROFILE_S:  # two calls each with most, a half of most, a quarter, …
        curve += _measured(run, largest)
        largest = curve[-1][0]
    if largest < most:
        say(too_much(options, largest))


def most_s(options: DeploymentOptions) -> float:
    """Return the seconds after which the warm-up goes on without the end of an answer in parts."""
    return min(LONGEST_ANSWER_S, options.stream_timeout_s)


def still_answers(predict: Callable[..., object], codec: Codec, options: DeploymentOptions, example: object) -> None:
    """Call `predict` again on an example. A model that has worked on it for long enough need not end its answer."""
    answer = whole(predict, codec, batched=options.batched, most_s=most_test_s(options))
    with suppress(Endless):
        try_out(answer, codec, [example])


def _measured(run: Callable[[int], float], largest: int) -> list[tuple[int, float]]:
    """Measure the sizes above 1; what fits once need not fit again, for others use the device too."""
    curve: list[tuple[int, float]] = []
    for size in sizes(largest)[1:]:
        if size < largest:  # which has been called already
            if_it_fits(lambda size=size: run(size))
        took_s = if_it_fits(lambda size=size: run(size))
        if took_s is None:
            break
        curve.append((size, took_s))
    return curve


def largest_that_fits(run: Callable[[int], Value], most: int) -> tuple[int, Value]:
    """Run the largest of `sizes(most)` that is not too much for the memory of the device; returns it and its result."""
    for size in reversed(sizes(most)[1:]):
        result = if_it_fits(lambda size=size: run(size))
        if result is not None:
            return size, result
    return 1, alone(lambda: run(1))


def if_it_fits(call: Callable[[], Value]) -> Value | None:
    """Return what a call returns, or None if the memory of the device is too small for it: it is let go of."""
    try:
        return call()
    except BaseException as error:
        if not is_out_of_memory(error):
            raise
        let_go(error)
    return None


def alone(call: Callable[[], Value]) -> Value:
    """Call `predict` on one item: if that is too much for the memory of the device, nothing can be served."""
    try:
        return call()
    except BaseException as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"one item alone is too much for the memory of the device ({one_line(error)}): "
            "free some of it, take a smaller model or a larger device, or make the first example smaller"
        ) from error


def too_much(options: DeploymentOptions, largest: int) -> str:
    """Say that a full batch does not fit, what does, and what becomes of those in between."""
    then = "are computed in parts" if options.retry else "fail, because of retry=False: lower max_batch_size"
    return (
        f"a batch of {options.max_batch_size} is too much for the memory of the device; "
        f"the largest that ran: {largest}; batches that do not fit {then}"
    )


def sizes(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`, which is always among them."""
    powers = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*powers, most]


def not_taken(example: object, error: JitneyError, method: str = "predict") -> str:
    """Say that an example is not an input of its deployment."""
    return f"the example {printable(repr(example))[:100]} is not what {method} takes: {error}"


def try_out(predict: Callable[..., object], codec: Codec, values: list[object]) -> float:
    """Call `predict` on these values as one batch, and check its answers; returns the seconds that it took."""
    arguments = codec.arguments(codec.from_python(values))
    began = perf_counter()
    output = predict(*arguments)
    took_s = perf_counter() - began
    codec.validate(output, len(values))
    return took_s
