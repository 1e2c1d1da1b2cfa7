"""NVIDIA's clients, each behind the same few calls: what is awaited is waited for, messages become dicts."""

# pyright: basic, reportMissingTypeStubs=false

import asyncio
import importlib
import inspect
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from tritonclient.utils import np_to_triton_dtype

KINDS = ("http", "http.aio", "grpc", "grpc.aio")


class TritonClient:
    """One of the clients. Not for several threads."""

    def __init__(self, kind: str, port: int, **options: Any) -> None:
        self.kind = kind
        self.module = importlib.import_module(f"tritonclient.{kind}")
        self._types = importlib.import_module(f"tritonclient.{kind.partition('.')[0]}")
        self._loop = asyncio.new_event_loop() if kind.endswith("aio") else None
        self.client = self._wait(self._make, f"127.0.0.1:{port}", options)

    def _make(self, url: str, options: Mapping[str, Any]) -> Any:
        async def make() -> Any:  # the asynchronous clients belong to a running loop
            return self.module.InferenceServerClient(url, **options)

        return make() if self._loop else self.module.InferenceServerClient(url, **options)

    def _wait(self, function: Any, *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        return self._loop.run_until_complete(result) if self._loop and inspect.isawaitable(result) else result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._wait(self.client.close)
        if self._loop:
            self._loop.close()

    @property
    def is_grpc(self) -> bool:
        return self.kind.startswith("grpc")

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client; gRPC's messages come back as REST's JSON does."""
        if self.is_grpc and method.startswith("get_"):
            options["as_json"] = True
        return self._wait(getattr(self.client, method), *arguments, **options)

    def tensor(self, name: str, values: np.ndarray, **options: Any) -> Any:
        """An input."""
        tensor = self._types.InferInput(name, values.shape, np_to_triton_dtype(values.dtype))
        tensor.set_data_from_numpy(values, **({} if self.is_grpc else options))
        return tensor

    def wanted(self, name: str, **options: Any) -> Any:
        """An output that is asked for."""
        return self._types.InferRequestedOutput(name, **({} if self.is_grpc else options))

    def infer(self, model: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] = (), **options: Any) -> Any:
        """Infer with all tensors as bytes."""
        tensors = [self.tensor(name, values) for name, values in inputs.items()]
        wanted = [self.wanted(name) for name in outputs] or None
        return self._wait(self.client.infer, model, tensors, outputs=wanted, **options)


def texts(*values: str) -> np.ndarray:
    """Texts as one column."""
    return np.array([[value] for value in values], dtype=np.object_)
