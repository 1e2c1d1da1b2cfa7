"""Serves any Python model to many clients at once and keeps the accelerator full.

```python
import jitney
import numpy as np

@jitney.deployment(max_batch_size=64)
class Embedder:
    def predict(self, texts: list[str]) -> np.ndarray: ...
```
"""

from typing import TYPE_CHECKING, Any

from jitney.context import Context, context, cpu_threads
from jitney.deployments.deployment import Deployment, deployment
from jitney.errors import (
    Cancelled,
    ConfigError,
    CrashLooping,
    DeadlineExceeded,
    DeadlineUnreachable,
    Disconnected,
    Draining,
    EngineFailed,
    InternalError,
    InvalidInput,
    InvalidOutput,
    InvalidRequest,
    JitneyError,
    Loading,
    MalformedBody,
    ModelFailed,
    NotFound,
    OutOfMemory,
    Overloaded,
    Quarantined,
    QueueBytesFull,
    QueueFull,
    RequestError,
    TargetError,
    TooLarge,
    TooManyLanes,
    Unavailable,
    WaitTooLong,
    WorkerBroken,
    WorkerLost,
    WouldBeLate,
)
from jitney.signature.grouping import bucket, length
from jitney.types.arrays import Embeddings, Tensor
from jitney.types.image import Image

if TYPE_CHECKING:
    from jitney.embedded.connect import connect, connect_sync
    from jitney.embedded.handles import Models, SyncModels
    from jitney.embedded.models import Model, SyncModel
    from jitney.embedded.run import run, run_sync

_LATER = {
    "Model": "jitney.embedded.models",
    "Models": "jitney.embedded.handles",
    "SyncModel": "jitney.embedded.models",
    "SyncModels": "jitney.embedded.handles",
    "connect": "jitney.embedded.connect",
    "connect_sync": "jitney.embedded.connect",
    "run": "jitney.embedded.run",
    "run_sync": "jitney.embedded.run",
}
"""What only a program with an engine needs, by the module that has it: a worker does without."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'jitney' has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - as late as what it imports

    value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "Cancelled",
    "ConfigError",
    "Context",
    "CrashLooping",
    "DeadlineExceeded",
    "DeadlineUnreachable",
    "Deployment",
    "Disconnected",
    "Draining",
    "Embeddings",
    "EngineFailed",
    "Image",
    "InternalError",
    "InvalidInput",
    "InvalidOutput",
    "InvalidRequest",
    "JitneyError",
    "Loading",
    "MalformedBody",
    "Model",
    "ModelFailed",
    "Models",
    "NotFound",
    "OutOfMemory",
    "Overloaded",
    "Quarantined",
    "QueueBytesFull",
    "QueueFull",
    "RequestError",
    "SyncModel",
    "SyncModels",
    "TargetError",
    "Tensor",
    "TooLarge",
    "TooManyLanes",
    "Unavailable",
    "WaitTooLong",
    "WorkerBroken",
    "WorkerLost",
    "WouldBeLate",
    "bucket",
    "connect",
    "connect_sync",
    "context",
    "cpu_threads",
    "deployment",
    "length",
    "run",
    "run_sync",
]
