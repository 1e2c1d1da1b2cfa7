"""Fake models for the tests of an application: functions in place of engines."""

import inspect
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from jitney.deployments.classes import deployment_of
from jitney.embedded import native
from jitney.embedded.values import FAILED, PYTHON
from jitney.errors import RequestError, known_reason
from jitney.failures import one_line
from jitney.testing.engine import Entrance, PythonEngine, PythonMailbox, Raw

Function = Callable[[Any], Any]


@dataclass
class Fakes:
    """What the models of an application were asked."""

    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """The name of the model and the item of each call, in order."""


@contextmanager
def fake(models: Mapping[Any, Function] | None = None, /, **named: Function) -> Generator[Fakes]:
    """Let `jitney.run`, `jitney.connect` and their kin, and FastAPI's `install`, give these functions as models.

    Nothing is started: no engine, no worker, no connection. A function takes one item as the program gives it, and
    returns its answer, or raises a RequestError such as `jitney.Overloaded`. It is a plain function and runs on another
    thread, one call at a time. Its key is the name of a deployment, or the class or function that is one.

    `with jitney.testing.fake(embedder=lambda text: [0.0]) as fakes: ...`
    """
    functions: dict[str, Function] = {
        key if isinstance(key, str) else deployment_of(key).name: function
        for key, function in {**(models or {}), **named}.items()
    }
    for name, function in functions.items():
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"the fake model {name!r} is `async def`: write a plain function")
    fakes = Fakes()
    with ThreadPoolExecutor(1, thread_name_prefix="jitney-fakes") as thread:
        entrances = {name: Entrance(_computing(name, each, fakes), thread) for name, each in functions.items()}
        manifests = {name: {"input": {"kind": "python"}, "output": {"kind": "python"}} for name in functions}

        def engine(*_: object) -> Any:
            return PythonEngine(entrances, manifests)

        with native.substituted(engine=engine, remote=engine, mailbox=cast("Any", PythonMailbox)):
            yield fakes


def _computing(name: str, function: Function, fakes: Fakes) -> Callable[[list[tuple[int, Any]], str | None], list[Raw]]:
    def compute(items: list[tuple[int, Any]], request_id: str | None) -> list[Raw]:
        answers: list[Raw] = []
        for _, item in items:
            fakes.calls.append((name, item))
            try:
                answers.append((PYTHON, function(item), None))
            except Exception as error:
                answers.append((FAILED, _failed(error, request_id), None))
        return answers

    return compute


def _failed(error: Exception, request_id: str | None) -> Any:
    """Return what a failed item crosses as; an error that is none of jitney's fails as one of `predict` does."""
    if not isinstance(error, RequestError):
        return ("model_failed", one_line(error), None, None, None, request_id or "")
    more = (getattr(error, "field", None), getattr(error, "status", None), getattr(error, "retry_after_s", None))
    return (known_reason(error), error.message, *more, request_id or "")
