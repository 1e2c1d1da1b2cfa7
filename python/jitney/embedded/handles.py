"""What `run` and `connect` return: the models of an engine, by name or by class."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from jitney.config.suggestion import closest
from jitney.deployments.classes import deployment_of
from jitney.deployments.composed.composition import Composed
from jitney.deployments.configured import ConfiguredDeployment, HasPredict
from jitney.deployments.deployment import Deployment
from jitney.embedded.callee import Callee, Engine
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.embedded.models import In_contra, Model, Out_co, StreamModel, SyncModel, SyncStreamModel
from jitney.embedded.streams.shapes import WorksInSteps, YieldsBatch, YieldsLater, YieldsOne
from jitney.errors import Disconnected, InvalidInput, NotFound
from jitney.signature.annotations import Output
from jitney.types.arrays import Embeddings
from jitney.types.steps import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jitney._core import Watcher

I = TypeVar("I")  # noqa: E741 - an item
O = TypeVar("O")  # noqa: E741 - an answer
P = TypeVar("P")
W = TypeVar("W")
_AnyModel = TypeVar("_AnyModel")
_Class = TypeVar("_Class")
_Value = TypeVar("_Value")
Soon = _Value | Coroutine[Any, Any, _Value]
"""What a `predict` returns that is `def` or `async def`."""
Of = type[_Class] | ConfiguredDeployment[..., _Class]
"""A class, or a configured deployment of it."""


class PredictsListOrErrors(Protocol[I, O]):
    """A class whose `predict` may return an error in place of an answer; the caller gets it raised."""

    def predict(self, items: list[I], /) -> "Soon[list[O | InvalidInput]]":
        """Take n items, return n answers or errors."""
        ...


class PredictsList(Protocol[I, O]):
    """A class whose `predict` takes a list and returns one."""

    def predict(self, items: list[I], /) -> "Soon[list[O]]":
        """Take n items, return n answers."""
        ...


class PredictsEmbeddings(Protocol[I]):
    """A class whose `predict` returns `jitney.Embeddings`; the caller gets the vector of each item."""

    def predict(self, items: list[I], /) -> "Soon[Embeddings]":
        """Take n items, return n vectors and how many tokens each item had."""
        ...


class PredictsArray(Protocol[I, Out_co]):
    """A class whose `predict` takes a list and returns an array: each item gets a row of it."""

    def predict(self, items: list[I], /) -> Out_co:
        """Take n items, return n rows."""
        ...


class AwaitsArray(Protocol[I, Out_co]):
    """A class whose `predict` is `async def`, takes a list and returns an array."""

    def predict(self, items: list[I], /) -> Coroutine[Any, Any, Out_co]:
        """Take n items, return n rows."""
        ...


class AwaitsStacked(Protocol[In_contra, Out_co]):
    """A class whose `predict` is `async def` and takes a stacked array, or one item."""

    def predict(self, items: In_contra, /) -> Coroutine[Any, Any, Out_co | InvalidInput]:
        """Take n rows and return n rows, or one item and its answer."""
        ...


class PredictsStacked(Protocol[In_contra, Out_co]):
    """A class whose `predict` takes a stacked array and returns an array, or takes one item and returns one answer."""

    def predict(self, items: In_contra, /) -> Out_co | InvalidInput:
        """Take n rows and return n rows, or one item and its answer."""
        ...


class _Handles(Generic[_AnyModel]):
    """Models of an engine by name or class. Each is made when it is first asked for."""

    def __init__(self, engine: Engine, make: Callable[[Callee, Callable[[str], _AnyModel]], _AnyModel]) -> None:
        self._engine = engine
        self._make = make
        self._manifests: dict[str, Any] = {}
        self._models: dict[object, _AnyModel] = {}
        self._read_manifests()

    def metrics(self) -> str:
        """Return all metrics of the engine in the Prometheus text format; NotFound if it is another process's."""
        text = self._engine.metrics()
        if text is None:
            raise NotFound("the metrics of a shared engine are its server's: ask GET /metrics there")
        return text

    def live_events(self) -> Iterator[bytes]:
        """Return the events of the live page, one a second; NotFound if they are another process's.

        `jitney.fastapi.live` serves them with the page. The first one is there at once; the others are waited for on
        the thread that takes them.
        """
        watch: Callable[[], Watcher] | None = getattr(self._engine, "watch", None)
        if watch is None:
            raise NotFound("the live page of a shared engine is its server's: open /live there")
        return iter(watch().next, None)

    def _read_manifests(self) -> None:
        """Read what the engine has now. Without a connection to its server the last manifests stay."""
        self._manifests = json.loads(self._engine.manifests()) or self._manifests

    def _has(self, name: str) -> bool:
        """Whether there is such a deployment, also if a server has it only since a reconnection."""
        if name not in self._manifests:
            self._read_manifests()
        return name in self._manifests

    def _get(self, key: object) -> _AnyModel:
        model = self._models.get(key)
        if model is None:
            kind = None if isinstance(key, str) else cast("Callable[..., Any]", key)
            name = cast("str", key) if kind is None else deployment_of(kind).name
            if not self._has(name):
                if self._methods_of(name):
                    return cast("_AnyModel", Methods(name, lambda method: self._method(key, name, method)))
                if not self._manifests:
                    raise Disconnected(f"the deployment {name!r} cannot be looked up: there is no connection")
                raise NotFound(self._missing(name))
            output = None if kind is None else deployment_of(kind).signature.output
            callee = Callee(name, self._engine, self._manifests[name], output)
            model = self._models[key] = self._make(callee, lambda method: self._method(key, name, method))
        return model

    def _methods_of(self, name: str) -> list[str]:
        """Return the methods other than `predict` of this deployment."""
        found = [(full, manifest.get("method")) for full, manifest in self._manifests.items()]
        return [method["name"] for full, method in found if method and method["deployment"] == name != full]

    def _method(self, key: object, name: str, method: str) -> _AnyModel:
        """Return a method of the model of this key, whose name is `name`."""
        model = self._models.get((key, method))
        if model is None:
            known = [] if method.startswith("_") else self._methods_of(name)
            if method not in known:
                has = f"; its methods are {', '.join(known)}" if known else ""
                raise AttributeError(f"the model {name!r} has no method {method!r}{has}")
            full = f"{name}.{method}"
            output = None if isinstance(key, str) else _output_of(deployment_of(cast("Any", key)), method)
            callee = Callee(full, self._engine, self._manifests[full], output)
            model = self._models[key, method] = self._make(callee, lambda further: self._method(key, full, further))
        return model

    def _missing(self, name: str) -> str:
        near = closest(name, self._manifests)
        hint = f"; did you mean {near!r}?" if near else ""
        return f"there is no deployment {name!r}, but {', '.join(sorted(self._manifests))}{hint}"

    def __getattr__(self, name: str) -> _AnyModel:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._manifests and not self._has(name) and not self._methods_of(name):
            raise AttributeError(self._missing(name))
        return self._get(name)

    def __dir__(self) -> list[str]:
        self._read_manifests()
        owners = [manifest["method"]["deployment"] for manifest in self._manifests.values() if manifest.get("method")]
        return [*sorted({*self._manifests, *owners}), "live_events", "metrics"]


def _output_of(deployment: Deployment, method: str) -> Output | None:
    return next((each.signature.output for each in deployment.methods if each.method == method), None)


class Methods(Generic[_AnyModel]):
    """A model without `predict`: its methods are its attributes."""

    def __init__(self, name: str, find: Callable[[str], _AnyModel]) -> None:
        self._name = name
        self._find = find

    def __getattr__(self, method: str) -> _AnyModel:
        return self._find(method)

    if not TYPE_CHECKING:  # a type checker refuses the call

        def __call__(self, *_: object, **__: object) -> object:
            """Say that there is nothing to call."""
            example = f"models.{self._name}.METHOD(item)"
            raise TypeError(f"the model {self._name!r} has no `predict`: call one of its methods, as in {example}")

    def __repr__(self) -> str:
        return f"<jitney.Methods {self._name}>"


class Models(_Handles[Model[Any, Any]]):
    """The models of an engine: `models.name`, `models["name"]`, or `models[Class]`, whose types are known."""

    def __init__(self, engine: Engine, mailboxes: LoopMailboxes) -> None:
        def make(callee: Callee, further: Callable[[str], Model[Any, Any]]) -> Model[Any, Any]:
            if callee.read_part is None:
                return Model(callee, further, mailboxes)
            return StreamModel[Any, Any, Any](callee, further, mailboxes)

        super().__init__(engine, make)
        self._sync: SyncModels | None = None

    @overload
    def __getitem__(self, key: str) -> Model[Any, Any]: ...
    @overload
    def __getitem__(self, key: Composed) -> Model[Any, Any]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsBatch[I, P, W]]") -> StreamModel[I, W, P]: ...  # pyright: ignore[reportOverlappingOverload] -- a function is not a type
    @overload
    def __getitem__(self, key: "Of[WorksInSteps[I, P, W]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsLater[I, P, W]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsOne[I, P, W]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsListOrErrors[I, O]]") -> Model[I, O]: ...  # pyright: ignore[reportOverlappingOverload] -- errors come first
    @overload
    def __getitem__(self, key: "Of[PredictsList[I, O]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsEmbeddings[I]]") -> "Model[I, NDArray[Any]]": ...
    @overload
    def __getitem__(self, key: "Of[AwaitsArray[I, O]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[AwaitsStacked[I, O]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsArray[I, O]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsStacked[I, O]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[HasPredict]") -> Model[Any, Any]: ...
    @overload
    def __getitem__(self, key: "Of[object]") -> "Methods[Model[Any, Any]]": ...  # pyright: ignore[reportOverlappingOverload] -- a function is not a type
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Iterator[list[Step[P, W]]]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[I], AsyncIterator[Step[P, W]]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[I], Iterator[Step[P, W]]]") -> StreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[list[O | InvalidInput]]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[list[O]]]") -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[Embeddings]]") -> "Model[I, NDArray[Any]]": ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], Coroutine[Any, Any, O]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], Coroutine[Any, Any, O | InvalidInput]]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], O]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], O | InvalidInput]) -> Model[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[..., Any]) -> Model[Any, Any]: ...
    def __getitem__(self, key: object) -> "Model[Any, Any] | Methods[Model[Any, Any]]":
        """Return the model of this name or class; NotFound if the engine has none."""
        return self._get(key)


class SyncModels(_Handles[SyncModel[Any, Any]]):
    """The models of an engine for threads: each call waits for its answer."""

    def __init__(self, engine: Engine) -> None:
        def make(callee: Callee, further: Callable[[str], SyncModel[Any, Any]]) -> SyncModel[Any, Any]:
            if callee.read_part is None:
                return SyncModel(callee, further)
            return SyncStreamModel[Any, Any, Any](callee, further)

        super().__init__(engine, make)

    @overload
    def __getitem__(self, key: str) -> SyncModel[Any, Any]: ...
    @overload
    def __getitem__(self, key: Composed) -> SyncModel[Any, Any]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsBatch[I, P, W]]") -> SyncStreamModel[I, W, P]: ...  # pyright: ignore[reportOverlappingOverload] -- a function is not a type
    @overload
    def __getitem__(self, key: "Of[WorksInSteps[I, P, W]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsLater[I, P, W]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[YieldsOne[I, P, W]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsListOrErrors[I, O]]") -> SyncModel[I, O]: ...  # pyright: ignore[reportOverlappingOverload] -- errors come first
    @overload
    def __getitem__(self, key: "Of[PredictsList[I, O]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsEmbeddings[I]]") -> "SyncModel[I, NDArray[Any]]": ...
    @overload
    def __getitem__(self, key: "Of[AwaitsArray[I, O]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[AwaitsStacked[I, O]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsArray[I, O]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[PredictsStacked[I, O]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Of[HasPredict]") -> SyncModel[Any, Any]: ...
    @overload
    def __getitem__(self, key: "Of[object]") -> "Methods[SyncModel[Any, Any]]": ...  # pyright: ignore[reportOverlappingOverload] -- a function is not a type
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Iterator[list[Step[P, W]]]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[I], AsyncIterator[Step[P, W]]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[I], Iterator[Step[P, W]]]") -> SyncStreamModel[I, W, P]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[list[O | InvalidInput]]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[list[O]]]") -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: "Callable[[list[I]], Soon[Embeddings]]") -> "SyncModel[I, NDArray[Any]]": ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], Coroutine[Any, Any, O]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], Coroutine[Any, Any, O | InvalidInput]]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[list[I]], O]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[[I], O | InvalidInput]) -> SyncModel[I, O]: ...
    @overload
    def __getitem__(self, key: Callable[..., Any]) -> SyncModel[Any, Any]: ...
    def __getitem__(self, key: object) -> "SyncModel[Any, Any] | Methods[SyncModel[Any, Any]]":
        """Return the model of this name or class; NotFound if the engine has none."""
        return self._get(key)


def for_threads(models: Models) -> SyncModels:
    """Return the same models of the same engine, for calls that wait."""
    if models._sync is None:  # pyright: ignore[reportPrivateUsage]
        models._sync = SyncModels(models._engine)  # pyright: ignore[reportPrivateUsage]
    return models._sync  # pyright: ignore[reportPrivateUsage]


def not_entered(name: str, what: str) -> AttributeError:
    """Return the error for an attribute of a `run` or `connect` that was not entered: it has no models yet."""
    remedy = f"write `with … as models:` (or `async with`), then models.{name}"
    return AttributeError(f"{what} has no {name!r} yet: {remedy}")
