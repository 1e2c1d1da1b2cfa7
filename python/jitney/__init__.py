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

from jitney.context import Context, RequestMetadata, context, cpu_threads
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
    ScaledToZero,
    TargetError,
    TooLarge,
    TooManyLanes,
    TooSlow,
    Unavailable,
    WaitTooLong,
    WorkerBroken,
    WorkerLost,
    WouldBeLate,
)

if TYPE_CHECKING:
    from jitney.deployments.composed.composition import Composed
    from jitney.deployments.configured import ConfiguredDeployment, configure
    from jitney.deployments.deployment import Deployment, deployment
    from jitney.deployments.methods import method
    from jitney.embedded.connect import connect, connect_sync
    from jitney.embedded.handles import Models, SyncModels
    from jitney.embedded.models import Model, StreamModel, SyncModel, SyncStreamModel
    from jitney.embedded.run import Engine, SyncEngine, run, run_sync
    from jitney.embedded.serve import serve
    from jitney.embedded.streams.parts import Parts, SyncParts
    from jitney.embedded.uses.composing import chain, together
    from jitney.embedded.uses.declaring import uses, uses_sync
    from jitney.measures import counter, histogram
    from jitney.signature.grouping import bucket, length
    from jitney.types.arrays import Embeddings, Tensor
    from jitney.types.chat import Chat, Message
    from jitney.types.image import Image
    from jitney.types.response import Response
    from jitney.types.steps import LATER, End, Later, Step, Usage

    __version__: str

_LATER = {
    "Chat": "jitney.types.chat",
    "Composed": "jitney.deployments.composed.composition",
    "ConfiguredDeployment": "jitney.deployments.configured",
    "Deployment": "jitney.deployments.deployment",
    "Embeddings": "jitney.types.arrays",
    "End": "jitney.types.steps",
    "Engine": "jitney.embedded.run",
    "Image": "jitney.types.image",
    "LATER": "jitney.types.steps",
    "Later": "jitney.types.steps",
    "Message": "jitney.types.chat",
    "Model": "jitney.embedded.models",
    "Models": "jitney.embedded.handles",
    "Parts": "jitney.embedded.streams.parts",
    "Response": "jitney.types.response",
    "Step": "jitney.types.steps",
    "StreamModel": "jitney.embedded.models",
    "SyncEngine": "jitney.embedded.run",
    "SyncModel": "jitney.embedded.models",
    "SyncModels": "jitney.embedded.handles",
    "SyncParts": "jitney.embedded.streams.parts",
    "SyncStreamModel": "jitney.embedded.models",
    "Tensor": "jitney.types.arrays",
    "Usage": "jitney.types.steps",
    "bucket": "jitney.signature.grouping",
    "chain": "jitney.embedded.uses.composing",
    "configure": "jitney.deployments.configured",
    "connect": "jitney.embedded.connect",
    "connect_sync": "jitney.embedded.connect",
    "counter": "jitney.measures",
    "deployment": "jitney.deployments.deployment",
    "histogram": "jitney.measures",
    "length": "jitney.signature.grouping",
    "method": "jitney.deployments.methods",
    "run": "jitney.embedded.run",
    "run_sync": "jitney.embedded.run",
    "serve": "jitney.embedded.serve",
    "together": "jitney.embedded.uses.composing",
    "uses": "jitney.embedded.uses.declaring",
    "uses_sync": "jitney.embedded.uses.declaring",
}
"""Modules of the public names that are imported at first use: a client needs no deployment, a worker no engine."""


def __getattr__(name: str) -> Any:
    import importlib  # noqa: PLC0415 - as late as what it imports

    if name == "__version__":
        value = _version()
    elif name in _LATER:
        value = getattr(importlib.import_module(_LATER[name]), name)
    else:
        raise AttributeError(f"module 'jitney' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - takes half as long as all of jitney

    try:
        return metadata.version("jitney")
    except metadata.PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "LATER",
    "Cancelled",
    "Chat",
    "Composed",
    "ConfigError",
    "ConfiguredDeployment",
    "Context",
    "CrashLooping",
    "DeadlineExceeded",
    "DeadlineUnreachable",
    "Deployment",
    "Disconnected",
    "Draining",
    "Embeddings",
    "End",
    "Engine",
    "EngineFailed",
    "Image",
    "InternalError",
    "InvalidInput",
    "InvalidOutput",
    "InvalidRequest",
    "JitneyError",
    "Later",
    "Loading",
    "MalformedBody",
    "Message",
    "Model",
    "ModelFailed",
    "Models",
    "NotFound",
    "OutOfMemory",
    "Overloaded",
    "Parts",
    "Quarantined",
    "QueueBytesFull",
    "QueueFull",
    "RequestError",
    "RequestMetadata",
    "Response",
    "ScaledToZero",
    "Step",
    "StreamModel",
    "SyncEngine",
    "SyncModel",
    "SyncModels",
    "SyncParts",
    "SyncStreamModel",
    "TargetError",
    "Tensor",
    "TooLarge",
    "TooManyLanes",
    "TooSlow",
    "Unavailable",
    "Usage",
    "WaitTooLong",
    "WorkerBroken",
    "WorkerLost",
    "WouldBeLate",
    "__version__",
    "bucket",
    "chain",
    "configure",
    "connect",
    "connect_sync",
    "context",
    "counter",
    "cpu_threads",
    "deployment",
    "histogram",
    "length",
    "method",
    "run",
    "run_sync",
    "serve",
    "together",
    "uses",
    "uses_sync",
]
