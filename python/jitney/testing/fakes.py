"""Fake models for the tests of an application: functions in place of engines."""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from jitney.deployments.classes import deployment_of
from jitney.embedded import native
from jitney.embedded.values import ENDED, FAILED, PYTHON
from jitney.errors import RequestError, known_reason
from jitney.failures import one_line
from jitney.testing.engine import Entrance, PythonEngine, PythonMailbox, Raw
from jitney.testing.streams import Event
from jitney.types.steps import NOTHING, End

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
    thread, one call at a time. Its key is the name of a deployment, or the class or function that is one. A generator
    function is a model that answers in parts: it yields parts, and may yield `jitney.End` as the last.

    `with jitney.testing.fake(embedder=lambda text: [0.0]) as fakes: ...`
    """
    functions: dict[str, Function] = {
        key if isinstance(key, str) else deployment_of(key).name: function
        for key, function in {**(models or {}), **named}.items()
    }
    for name, function in functions.items():
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"the fake model {name!r} is `async def`: write a plain function")
    fakes = Fakes()
    with ThreadPoolExecutor(1, thread_name_prefix="jitney-fakes") as thread:
        entrances = {
            name: Entrance(_computing(name, each, fakes), thread, partial(_stream, name, each, fakes))
            for name, each in functions.items()
        }
        manifests = {name: _manifest(each) for name, each in functions.items()}

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
                answer = function(item)
                answers.append((PYTHON, _whole(answer) if inspect.isgenerator(answer) else answer, None))
            except Exception as error:
                answers.append((FAILED, _failed(error, request_id), None))
        return answers

    return compute


def _manifest(function: Function) -> dict[str, Any]:
    part = {"part": {"kind": "python"}} if inspect.isgeneratorfunction(function) else {}
    return {"input": {"kind": "python"}, "output": {"kind": "python", **part}}


def _stream(
    name: str, function: Function, fakes: Fakes, item: tuple[int, Any], request_id: str | None
) -> Iterator[Event]:
    """Yield the parts that a fake model makes of an item, each when it is made, and the end."""
    fakes.calls.append((name, item[1]))
    made: Any = function(item[1])
    try:
        with closing(made):
            for outcome in made:
                if isinstance(outcome, Exception):
                    raise outcome
                if isinstance(outcome, End):
                    yield from _last(cast("End[Any]", outcome))
                    return
                if outcome is not None:
                    yield (PYTHON, outcome, None)
        yield from _last(End())
    except Exception as error:
        yield (FAILED, _failed(error, request_id), None)


def _last(end: End[Any]) -> Iterator[Event]:
    if end.part is not NOTHING:
        yield (PYTHON, end.part, None)
    usage = None if end.usage is None else (end.usage.input, end.usage.output)
    yield (ENDED, (end.reason, usage, None if end.answer is NOTHING else (PYTHON, end.answer, None)), None)


def _whole(made: Iterator[Any]) -> Any:
    """Return the whole answer of a fake model that answers in parts."""
    parts: list[Any] = []
    for outcome in made:
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, End):
            end = cast("End[Any]", outcome)
            if end.answer is not NOTHING:
                return end.answer
            parts += [] if end.part is NOTHING else [end.part]
            break
        parts += [] if outcome is None else [outcome]
    for kind in (str, bytes):
        if parts and all(isinstance(part, kind) for part in parts):
            return kind().join(parts)
    return parts


def _failed(error: Exception, request_id: str | None) -> Any:
    """Return what a failed item crosses as; an error that is none of jitney's fails as one of `predict` does."""
    if not isinstance(error, RequestError):
        return ("model_failed", one_line(error), None, None, None, request_id or "")
    more = (getattr(error, "field", None), getattr(error, "status", None), getattr(error, "retry_after_s", None))
    return (known_reason(error), error.message, *more, request_id or "")
