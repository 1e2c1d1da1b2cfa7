"""Serves any Python model to many clients at once and keeps the accelerator full.

```python
import jitney
import numpy as np

@jitney.deployment(max_batch_size=64)
class Embedder:
    def predict(self, texts: list[str]) -> np.ndarray: ...
```
"""

from jitney.context import Context, context, cpu_threads
from jitney.deployment import Deployment, deployment
from jitney.errors import (
    Cancelled,
    ConfigError,
    CrashLooping,
    DeadlineExceeded,
    DeadlineUnreachable,
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
)
from jitney.grouping import bucket, length
from jitney.types import Image, Tensor

__all__ = [
    "Cancelled",
    "ConfigError",
    "Context",
    "CrashLooping",
    "DeadlineExceeded",
    "DeadlineUnreachable",
    "Deployment",
    "Draining",
    "EngineFailed",
    "Image",
    "InternalError",
    "InvalidInput",
    "InvalidOutput",
    "InvalidRequest",
    "JitneyError",
    "Loading",
    "MalformedBody",
    "ModelFailed",
    "NotFound",
    "Overloaded",
    "Quarantined",
    "QueueBytesFull",
    "QueueFull",
    "RequestError",
    "TargetError",
    "Tensor",
    "TooLarge",
    "TooManyLanes",
    "Unavailable",
    "WaitTooLong",
    "WorkerLost",
    "bucket",
    "context",
    "cpu_threads",
    "deployment",
    "length",
]
