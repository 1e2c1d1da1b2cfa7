"""Before a replica serves: what is built at the first call is built, and what batches take is measured."""

from collections.abc import Callable, Sequence
from time import perf_counter

from jitney.codecs import Codec
from jitney.config import DeploymentOptions
from jitney.errors import ConfigError, JitneyError
from jitney.failures import sayable

SLOW_WARM_UP_S = 5.0
"""A full batch is tried out only if one item alone, times the size of the batch, promises to take less."""
SLOW_PROFILE_S = 2.0
"""All sizes are measured only if that promises to take less."""


def warm_up(
    predict: Callable[..., object], codec: Codec, options: DeploymentOptions, examples: Sequence[object]
) -> list[tuple[int, float]]:
    """Call `predict` on an example, on a full batch of it, and if they are quick on batches of 2, 4, … of it.

    Batches of one example, because different ones need not belong to one group. Returns (size, seconds), each of
    a second call: a model may compile for a size when it first sees it. Without examples nothing is called.
    """
    if not examples:
        return []
    for example in examples:
        for _, error in codec.from_python([example]).errors:
            raise ConfigError(not_taken(example, error)) from error.__cause__

    def run(size: int) -> float:
        return _try_out(predict, codec, [examples[0]] * size)

    first_s, alone_s = run(1), run(1)
    curve = [(1, alone_s)]
    most = options.max_batch_size
    if not options.batched or most == 1 or min(first_s, alone_s) * most > SLOW_WARM_UP_S:
        return curve
    full_s = run(most)
    if 4 * full_s > SLOW_PROFILE_S:  # two calls each with most, a half of most, a quarter, …
        return curve
    for size in sizes(most)[1:-1]:
        run(size)
        curve.append((size, run(size)))
    return [*curve, (most, run(most))]


def sizes(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`, which is always among them."""
    powers = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*powers, most]


def not_taken(example: object, error: JitneyError) -> str:
    """Say that an example is not an input of its deployment."""
    return f"the example {sayable(repr(example))[:100]} is not what predict takes: {error}"


def _try_out(predict: Callable[..., object], codec: Codec, values: list[object]) -> float:
    arguments = codec.arguments(codec.from_python(values))
    began = perf_counter()
    output = predict(*arguments)
    took_s = perf_counter() - began
    codec.validate(output, len(values))
    return took_s
