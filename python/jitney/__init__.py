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
from jitney.deployment import Deployment, deployment
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
    WorkerLost,
    WouldBeLate,
)
from jitney.grouping import bucket, length
from jitney.types import Embeddings, Image, Tensor

if TYPE_CHECKING:
    from jitney.program.connecting import connect, connect_sync
    from jitney.program.models import Model, Models, SyncModel, SyncModels
    from jitney.program.running import run, run_sync

_LATER = {
    "Model": "jitney.program.models",
    "Models": "jitney.program.models",
    "SyncModel": "jitney.program.models",
    "SyncModels": "jitney.program.models",
    "connect": "jitney.program.connecting",
    "connect_sync": "jitney.program.connecting",
    "run": "jitney.program.running",
    "run_sync": "jitney.program.running",
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
