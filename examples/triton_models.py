"""The models that the examples of NVIDIA's clients call: `simple`, `simple_string` and `simple_identity`.

jitney serve examples/triton_models.py
curl -s 127.0.0.1:8000/v2/models/simple
pip install "tritonclient[http,grpc]"; NVIDIA's examples for it are in the repository
triton-inference-server/client, folder src/python/examples. Those for inference pass with `-u localhost:8000`
(the default of the gRPC ones is port 8001): simple_{http,grpc}_infer_client.py, _string_infer_, _async_infer_,
_aio_infer_, simple_grpc_keepalive_client.py. Those for sequences, shared memory and model control do not, nor
those for metadata, which insist that the server is called triton.
"""

from typing import Annotated, NamedTuple

import jitney
import msgspec
import numpy as np
from numpy.typing import NDArray

Sixteen = Annotated[NDArray[np.int32], jitney.Tensor("int32", (16,))]


class Numbers(NamedTuple):
    """A sum and a difference, under the names that the clients expect."""

    OUTPUT0: Sixteen
    OUTPUT1: Sixteen


@jitney.deployment(
    max_batch_size=8,
    examples=[{"INPUT0": np.arange(16, dtype=np.int32), "INPUT1": np.ones(16, np.int32)}],
)
def simple(INPUT0: Sixteen, INPUT1: Sixteen) -> Numbers:
    """Add and subtract sixteen numbers."""
    return Numbers(INPUT0 + INPUT1, INPUT0 - INPUT1)


class Operands(msgspec.Struct):
    """Sixteen numbers twice, as text."""

    INPUT0: Annotated[list[str], msgspec.Meta(min_length=16, max_length=16)]
    INPUT1: Annotated[list[str], msgspec.Meta(min_length=16, max_length=16)]


class Results(msgspec.Struct):
    """A sum and a difference, as text."""

    OUTPUT0: list[str]
    OUTPUT1: list[str]


def _calculate(item: Operands) -> Results | jitney.InvalidInput:
    try:
        pairs = [(int(a), int(b)) for a, b in zip(item.INPUT0, item.INPUT1, strict=True)]
    except ValueError as error:
        return jitney.InvalidInput(f"expected numbers as text: {error}")
    return Results([str(a + b) for a, b in pairs], [str(a - b) for a, b in pairs])


@jitney.deployment(max_batch_size=8, examples=[Operands(["1"] * 16, ["2"] * 16)])
def simple_string(items: list[Operands]) -> list[Results | jitney.InvalidInput]:
    """Add and subtract sixteen numbers that are text."""
    return [_calculate(item) for item in items]


class Input(msgspec.Struct):
    """Any number of strings."""

    INPUT0: list[str]


class Output(msgspec.Struct):
    """The same strings."""

    OUTPUT0: list[str]


@jitney.deployment(max_batch_size=8, examples=[Input(["a", "b"])])
def simple_identity(items: list[Input]) -> list[Output]:
    """Return the input."""
    return [Output(item.INPUT0) for item in items]
