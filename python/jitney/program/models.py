"""What `run` and `connect` hand out: the models of an engine, each of them a function to be awaited, or called."""

import asyncio
import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, cast, overload
from weakref import WeakKeyDictionary, ref

from jitney.errors import Draining, EngineFailed, InternalError, NotFound, RequestError
from jitney.program import core
from jitney.program.classes import deployment_of
from jitney.program.values import BUFFERS, FAILED, Read, Write, exception, reader, writer

if TYPE_CHECKING:
    from jitney import _core

I = TypeVar("I")  # noqa: E741 - an item
O = TypeVar("O")  # noqa: E741 - an answer
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Priority = Literal["high", "normal", "low"]


class PredictsList(Protocol[I, O]):
    """A class whose `predict` takes a list and returns one."""

    def predict(self, items: list[I], /) -> list[O]:
        """Take n items, return n answers."""
        ...


class PredictsArray(Protocol[I, Out_co]):
    """A class whose `predict` takes a list and returns an array: each item gets a row of it."""

    def predict(self, items: list[I], /) -> Out_co:
        """Take n items, return n rows."""
        ...


class PredictsStacked(Protocol[In_contra, Out_co]):
    """A class whose `predict` takes a stacked array and returns an array."""

    def predict(self, items: In_contra, /) -> Out_co:
        """Take n rows, return n rows."""
        ...


class Engine(Protocol):
    """What models are called through: the engine in this process, or the connection to another one."""

    def entrance(self, name: str) -> "_core.Entrance | None":
        """Return the way in to a deployment; None if there is none of this name."""
        ...

    def manifests(self) -> str:
        """Return the manifests of all deployments by name, as JSON."""
        ...

    def failure(self) -> str | None:
        """Return why the engine has ended, if it did so by itself."""
        ...

    def metrics(self) -> str | None:
        """Return all metrics in the Prometheus text format; None if they are another process's."""
        ...


class Post:
    """The mailbox of each event loop that calls.

    A mailbox belongs to its loop, which lets go of it when it is closed; here is only known where it is.
    """

    def __init__(self) -> None:
        # Of the loop that called last, in one piece: loops of other threads change it too.
        self._last: tuple[asyncio.AbstractEventLoop | None, Callable[[], _core.Mailbox | None]] = (None, _nothing)
        self._known: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_core.Mailbox]] = WeakKeyDictionary()

    def mailbox(self) -> "_core.Mailbox":
        """Return the mailbox of the running loop."""
        loop = asyncio.get_running_loop()
        of, last = self._last
        if of is loop and (mailbox := last()) is not None:
            return mailbox
        mailbox = self._known.get(loop, _nothing)()
        if mailbox is None:
            mailbox = core.mailbox(loop)
            loop.add_reader(mailbox.fileno(), mailbox.drain)
            self._known[loop] = ref(mailbox)
        self._last = loop, ref(mailbox)
        return mailbox

    async def wait_for(self, starting: "_core.Starting") -> Any:
        """Wait for something that the engine does."""
        mailbox = self.mailbox()
        future, number = mailbox.wait_for(starting)
        try:
            return await future
        except BaseException:
            mailbox.cancel(number)
            raise

    def close(self, reason: str, detail: str) -> None:
        """Let the running loop forget its mailbox; calls that are still under way fail for this reason."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a coroutine that nobody finished is thrown away after its loop: nobody waits
            return
        mailbox = self._known.pop(loop, _nothing)()
        if mailbox is not None:
            mailbox.fail_all(reason, detail)
            loop.remove_reader(mailbox.fileno())
        self._last = None, _nothing


def _nothing() -> None:
    return None


class _Callee:
    """One deployment, as both kinds of model call it."""

    def __init__(self, name: str, engine: Engine, manifest: Mapping[str, Any], kind: Callable[..., Any] | None) -> None:
        entrance = engine.entrance(name)
        if entrance is None:
            raise EngineFailed(f"{name} takes no more calls: its engine has ended")
        self.name: Final = name
        self.engine: Final = engine
        self.entrance: Final = entrance
        self.takes_images: Final[bool] = manifest["input"]["kind"] == "image"
        self.write: Final[Write] = writer(manifest["input"])
        self.read: Final[Read] = reader(manifest["output"], deployment_of(kind).signature.output if kind else None)

    def one(self, raw: Any) -> Any:
        """Read one answer; raise what it failed with."""
        if raw[0] == FAILED:
            raise self._error(raw[1])
        return self.read(raw)

    def each(self, raws: Sequence[Any]) -> list[Any]:
        """Read many answers; what failed is its exception."""
        return [self._error(raw[1]) if raw[0] == FAILED else self.read(raw) for raw in raws]

    def _error(self, failed: Any) -> Exception:
        error = exception(failed)
        # An engine that broke answers like one that ends in order.
        if isinstance(error, (InternalError, Draining)) and (why := self.engine.failure()) is not None:
            return EngineFailed(why)
        return error

    def write_each(self, items: Iterable[Any]) -> tuple[list[tuple[int, Any]], dict[int, RequestError]]:
        """Write many items; those that cannot be sent are told by their place."""
        if isinstance(items, (str, bytes, bytearray, memoryview)):  # their items are letters and numbers
            kind = type(cast("object", items)).__name__
            raise TypeError(f"many takes a list of items, not a {kind}; one item alone: models.{self.name}(item)")
        written: list[tuple[int, Any]] = []
        refused: dict[int, RequestError] = {}
        for place, item in enumerate(items):
            try:
                written.append(self.write(item))
            except RequestError as error:
                refused[place] = error
        return written, refused


def _together(answers: list[Any], refused: dict[int, RequestError]) -> list[Any]:
    for place, error in sorted(refused.items()):
        answers.insert(place, error)
    return answers


class Model(Generic[In_contra, Out_co]):
    """One deployment, to be awaited from any event loop."""

    def __init__(self, callee: _Callee, post: Post) -> None:
        self._callee = callee
        self._post = post
        self._write, self._read, self._entrance = callee.write, callee.read, callee.entrance

    async def __call__(
        self, item: In_contra, *, timeout_s: float | None = None, priority: Priority = "normal"
    ) -> Out_co:
        """Run one item; a RequestError says how it ended if not with an answer. Cancelling the task cancels it.

        `timeout_s`: the deadline, from now; unless given it is the deployment's `request_timeout_s`.
        """
        if self._callee.takes_images and not isinstance(item, BUFFERS):
            # To encode a picture takes as long as it is large, and the loop has others to look after.
            tag, data = await asyncio.to_thread(self._write, item)
        else:
            tag, data = self._write(item)
        mailbox = self._post.mailbox()
        future, number = mailbox.call(self._entrance, tag, data, timeout_s, priority)
        try:
            raw = await future
        except BaseException:
            mailbox.cancel(number)
            raise
        return self._callee.one(raw) if raw[0] == FAILED else self._read(raw)

    async def many(
        self, items: Iterable[In_contra], *, timeout_s: float | None = None, priority: Priority = "normal"
    ) -> list[Out_co | RequestError]:
        """Run the items of one request, admitted together: an answer or an exception each, in their order."""
        if self._callee.takes_images:
            written, refused = await asyncio.to_thread(self._callee.write_each, items)
        else:
            written, refused = self._callee.write_each(items)
        if not written:
            return _together([], refused)
        mailbox = self._post.mailbox()
        future, number = mailbox.call_many(self._entrance, written, timeout_s, priority)
        try:
            raws = await future
        except BaseException:
            mailbox.cancel(number)
            raise
        return _together(self._callee.each(raws), refused)

    def __repr__(self) -> str:
        return f"<jitney.Model {self._callee.name}>"


class SyncModel(Generic[In_contra, Out_co]):
    """One deployment, to be called from any thread; each call waits for its answer."""

    def __init__(self, callee: _Callee) -> None:
        self._callee = callee

    def __call__(self, item: In_contra, *, timeout_s: float | None = None, priority: Priority = "normal") -> Out_co:
        """Run one item; a RequestError says how it ended if not with an answer."""
        tag, data = self._callee.write(item)
        return self._callee.one(self._callee.entrance.call_and_wait(tag, data, timeout_s, priority))

    def many(
        self, items: Iterable[In_contra], *, timeout_s: float | None = None, priority: Priority = "normal"
    ) -> list[Out_co | RequestError]:
        """Run the items of one request, admitted together: an answer or an exception each, in their order."""
        written, refused = self._callee.write_each(items)
        raws = self._callee.entrance.call_many_and_wait(written, timeout_s, priority) if written else []
        return _together(self._callee.each(raws), refused)

    def __repr__(self) -> str:
        return f"<jitney.SyncModel {self._callee.name}>"


_M = TypeVar("_M")


class _Handles(Generic[_M]):
    """Models by name, each made when it is first asked for."""

    def __init__(self, engine: Engine, make: Callable[[_Callee], _M]) -> None:
        self._engine = engine
        self._make = make
        self._manifests: dict[str, Any] = json.loads(engine.manifests())
        self._made: dict[object, _M] = {}

    def names(self) -> list[str]:
        return sorted(self._manifests)

    def get(self, key: object) -> _M:
        made = self._made.get(key)
        if made is None:
            kind = None if isinstance(key, str) else cast("Callable[..., Any]", key)
            name = cast("str", key) if kind is None else deployment_of(kind).name
            if name not in self._manifests:
                raise NotFound(self.missing(name))
            made = self._made[key] = self._make(_Callee(name, self._engine, self._manifests[name], kind))
        return made

    def missing(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._manifests, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no deployment {name!r}, but {', '.join(self.names())}{hint}"


def _metrics(engine: Engine) -> str:
    text = engine.metrics()
    if text is None:
        raise NotFound("the metrics of a shared engine are its server's: ask GET /metrics there")
    return text


class Models:
    """The models of an engine: `models.name`, `models["name"]`, or `models[Class]`, whose types are known."""

    def __init__(self, engine: Engine, post: Post) -> None:
        self._handles: _Handles[Model[Any, Any]] = _Handles(engine, lambda callee: Model(callee, post))
        self._engine = engine

    def metrics(self) -> str:
        """Return all metrics of the engine in the Prometheus text format; NotFound if it is another process's."""
        return _metrics(self._engine)

    @overload
    def __getitem__(self, key: str) -> Model[Any, Any]: ...
    @overload
    def __getitem__(self, key: type[PredictsList[I, O]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: type[PredictsArray[I, O]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: type[PredictsStacked[I, O]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], list[O]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], O]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], O]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[..., Any]) -> Model[Any, Any]: ...
    def __getitem__(self, key: object) -> Model[Any, Any]:
        """Return the model of this name or class; NotFound if the engine has none."""
        return self._handles.get(key)

    def __getattr__(self, name: str) -> Model[Any, Any]:
        if name.startswith("_") or name not in self._handles.names():
            raise AttributeError(self._handles.missing(name) if not name.startswith("_") else name)
        return self._handles.get(name)

    def __dir__(self) -> list[str]:
        return [*self._handles.names(), "metrics"]


def not_entered(name: str, what: str) -> AttributeError:
    """Return what to raise for an attribute of something whose models are there once it is entered."""
    remedy = f"write `with … as models:` (or `async with`), then models.{name}"
    return AttributeError(f"{what} has no {name!r} yet: {remedy}")


class SyncModels:
    """The same for threads: each call waits for its answer."""

    def __init__(self, engine: Engine) -> None:
        self._handles: _Handles[SyncModel[Any, Any]] = _Handles(engine, SyncModel)
        self._engine = engine

    def metrics(self) -> str:
        """Return all metrics of the engine in the Prometheus text format; NotFound if it is another process's."""
        return _metrics(self._engine)

    @overload
    def __getitem__(self, key: str) -> SyncModel[Any, Any]: ...
    @overload
    def __getitem__(self, key: type[PredictsList[I, O]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: type[PredictsArray[I, O]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: type[PredictsStacked[I, O]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], list[O]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], O]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], O]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[..., Any]) -> SyncModel[Any, Any]: ...
    def __getitem__(self, key: object) -> SyncModel[Any, Any]:
        """Return the model of this name or class; NotFound if the engine has none."""
        return self._handles.get(key)

    def __getattr__(self, name: str) -> SyncModel[Any, Any]:
        if name.startswith("_") or name not in self._handles.names():
            raise AttributeError(self._handles.missing(name) if not name.startswith("_") else name)
        return self._handles.get(name)

    def __dir__(self) -> list[str]:
        return [*self._handles.names(), "metrics"]
