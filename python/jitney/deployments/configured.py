"""`jitney.configure`: a deployment of a class with other options and constructor arguments, as an object."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from jitney.config.keywords import DeploymentKeywords
from jitney.config.layers import check_plain
from jitney.deployments.deployment import MARK, Deployment
from jitney.errors import ConfigError, TargetError
from jitney.signature import grouping

_Arguments = ParamSpec("_Arguments")
_Taken_contra = TypeVar("_Taken_contra", contravariant=True)
_Returned_co = TypeVar("_Returned_co", covariant=True)


class HasPredict(Protocol):
    """An instance of a class that can be deployed."""

    @property
    def predict(self) -> Callable[..., Any]:
        """Take items, return answers."""
        ...


class FunctionModel(Protocol[_Taken_contra, _Returned_co]):
    """A function that can be deployed, as the class that it stands for."""

    def predict(self, items: _Taken_contra, /) -> _Returned_co:
        """Take items, return answers."""
        ...


_Model = TypeVar("_Model", bound=HasPredict)
_Other = TypeVar("_Other")
_Model_co = TypeVar("_Model_co", covariant=True)


class ConfiguredDeployment(Deployment, Generic[_Arguments, _Model_co]):
    """A deployment that is a value: the class or function, options over those of its decorator, constructor arguments.

    It stands at the top level of a module. Workers import the module and find it there.
    """

    def __init__(
        self, obj: Callable[..., Any], options: Mapping[str, Any], module: str, init: Mapping[str, object]
    ) -> None:
        super().__init__(obj, options)
        self.module = module
        self.init = init

    def __call__(
        self, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> "ConfiguredDeployment[_Arguments, _Model_co]":
        """Return this deployment with these arguments of the constructor: plain values, as in `jitney.toml`."""
        if not isinstance(self.obj, type):
            raise ConfigError(f"deployment `{self.name}` is a function: it takes no constructor arguments")
        try:
            arguments = {**inspect.signature(self.obj).bind_partial(*args).arguments, **kwargs}
        except TypeError as error:
            raise ConfigError(f"deployment `{self.name}`: {error}; give constructor arguments by name") from None
        for key, value in arguments.items():
            if value is not None:
                check_plain(f"deployment `{self.name}`: constructor argument `{key}`", value)
        return ConfiguredDeployment(self.obj, self.given, self.module, {**self.init, **arguments})

    def __repr__(self) -> str:
        return f"<jitney.ConfiguredDeployment {self.name} of {self.obj.__qualname__}>"


@overload
def configure(
    served: Callable[_Arguments, _Model],
    /,
    *,
    name: str | None = None,
    route: str | None = None,
    group_by: Sequence[grouping.Term] = (),
    cost: grouping.Term | None = None,
    task: str | None = None,
    examples: Sequence[Any] = (),
    **options: Unpack[DeploymentKeywords],
) -> ConfiguredDeployment[_Arguments, _Model]: ...
@overload
def configure(  # pyright: ignore[reportOverlappingOverload] -- a function is not a type
    served: type[_Other],
    /,
    *,
    name: str | None = None,
    route: str | None = None,
    group_by: Sequence[grouping.Term] = (),
    cost: grouping.Term | None = None,
    task: str | None = None,
    examples: Sequence[Any] = (),
    **options: Unpack[DeploymentKeywords],
) -> ConfiguredDeployment[..., _Other]: ...
@overload
def configure(
    served: Callable[[_Taken_contra], _Returned_co],
    /,
    *,
    name: str | None = None,
    route: str | None = None,
    group_by: Sequence[grouping.Term] = (),
    cost: grouping.Term | None = None,
    task: str | None = None,
    examples: Sequence[Any] = (),
    **options: Unpack[DeploymentKeywords],
) -> ConfiguredDeployment[[], FunctionModel[_Taken_contra, _Returned_co]]: ...
def configure(served: Any, /, **options: Any) -> Any:
    """Return a deployment of this class or function with other options: one class can be several models.

    `small = jitney.configure(Embedder, name="small", replicas=2)` and, with constructor arguments,
    `large = jitney.configure(Embedder, name="large")(checkpoint="large")`. The options are those of
    `@jitney.deployment`, which the class may have: they replace its own. Put the result at the top level of a module.
    """
    if not isinstance(served, type) and not inspect.isfunction(served):
        raise TargetError(f"jitney.configure takes a class or a function, not {served!r}")
    mark = vars(served).get(MARK)
    given: Mapping[str, Any] = mark.given if isinstance(mark, Deployment) and mark.obj is served else {}
    module = sys._getframe(1).f_globals["__name__"]  # pyright: ignore[reportPrivateUsage]
    return ConfiguredDeployment[Any, Any](served, {**given, **options}, module, {})
