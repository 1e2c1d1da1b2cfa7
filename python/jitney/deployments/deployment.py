"""`@jitney.deployment`: what an author declares about a class or function that is served."""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeVar, Unpack, cast, overload

from jitney.config.init_arguments import constructor_arguments
from jitney.config.keywords import DeploymentKeywords
from jitney.config.layers import SERVER
from jitney.config.names import snake_case
from jitney.config.option import parse, unknown
from jitney.config.options import deployment_options
from jitney.deployments.methods import function_of, marked
from jitney.deployments.model import LoadedModel, as_generator, is_async, step_functions
from jitney.errors import ConfigError, TargetError
from jitney.signature import grouping, tasks
from jitney.signature.annotations import Signature, read_signature, read_step_signature
from jitney.signature.hints import class_arguments
from jitney.types.uses import check_instance, check_uses, uses_of

MARK: Final = "__jitney_deployment__"

RESERVED: Final = frozenset(
    {"livez", "readyz", "metrics", "config", "openapi.json", "docs", "live", "favicon.ico", "v1", "v2", SERVER}
)
"""Routes and words of the server's own, which no deployment can be named; a test compares them with Rust's."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_ROUTE: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_Served = TypeVar("_Served", bound=Callable[..., Any])


class Deployment:
    """A class or function that is served, as its decorator declared it."""

    def __init__(
        self,
        obj: Callable[..., Any],
        options: Mapping[str, Any],
        names: Mapping[str, object] | None = None,
        method: str | None = None,
    ) -> None:
        self.given: Final[Mapping[str, Any]] = options
        options = dict(options)
        name: str | None = options.pop("name", None)
        self.name: Final = _checked_name(
            snake_case(obj.__name__) if name is None else name, obj, is_given=name is not None
        )
        self.obj: Final = obj
        self.route: Final = _checked_route(self.name, options.pop("route", None))
        self.group_by: Final = _terms(self.name, options.pop("group_by", ()))
        self.cost: Final[grouping.Term | None] = options.pop("cost", None)
        self.task: Final[str | None] = options.pop("task", None)
        tasks.check_name(self.name, self.task)
        self.examples: Final[list[Any]] = _examples(self.name, options.pop("examples", ()))
        self.declared: Final = _declared(self.name, options)
        self.init: Mapping[str, object] = {}
        """Constructor arguments that the code gives; all layers of options are above them."""
        self.module: str = obj.__module__
        self._names = names
        self.method: Final = method
        """The method that this serves; None of a class's own deployment, which serves `predict`."""
        self.methods: Final[tuple[Deployment, ...]] = (
            self._further(options) if isinstance(obj, type) and method is None else ()
        )
        """What `@jitney.method` marked, each as a deployment with the options of the class."""
        self.has_steps: Final = method is None and _has_steps(obj)
        """Whether the model works in steps: it has `admit` and `step`, and no `predict`."""
        has_predict = self.has_steps or not isinstance(obj, type) or callable(getattr(obj, "predict", None))
        self.served: Final[tuple[Deployment, ...]] = (
            (self, *self.methods) if has_predict or method is not None else self.methods
        )
        """What this class or function serves: each has its own types and routes."""
        _check_pair(obj, method)
        if not self.served:
            raise TargetError(
                f"{obj.__qualname__} has no method `predict`; write `def predict(self, ...)`, or `admit` and `step`"
            )
        self._function_name: Final = method or self.served[0].method or ("step" if self.has_steps else "predict")
        if self.has_steps:
            _check_steps(self)
        described = obj if method is None else self._predict()[0]
        self.doc: Final = (inspect.getdoc(described) or "").split("\n\n")[0].strip() if described.__doc__ else ""
        self._check_methods()
        self.uses: Final = uses_of(obj)
        """The other deployments that it calls, by the attribute of the class."""
        check_uses(obj, self.name, is_async=self.is_async)
        for hook in ("close", "check"):
            if isinstance(obj, type) and is_async(getattr(obj, hook, None)) and not self.is_async:
                where = f"{obj.__qualname__}.{hook} is `async def` and `predict` is not"
                raise TargetError(f"{where}: nothing awaits it; write `def {hook}`")

    def _further(self, options: Mapping[str, Any]) -> "tuple[Deployment, ...]":
        """Return the marked methods, as deployments that have these options of the class."""
        path = self.route or f"/{self.name}"

        def of(name: str, own: Mapping[str, Any]) -> Deployment:
            named = {"name": f"{self.name}.{name}", "route": own.get("route") or f"{path}/{name}"}
            return Deployment(self.obj, {**options, **own, **named}, self._names, name)

        return tuple(of(name, mark.options) for name, mark in marked(cast("type", self.obj)).items())

    def _check_methods(self) -> None:
        kind = self.obj.__qualname__
        if self.served[0] is not self:
            for option in ("group_by", "cost", "task", "examples"):
                if getattr(self, option):
                    where = f"{kind} has no `predict`: {option} of @jitney.deployment"
                    raise ConfigError(f"{where} would be of no method; give it to one: @jitney.method({option}=...)")
        for each in self.methods:
            if each.is_async != self.is_async:
                one, other = (each, self) if each.is_async else (self, each)
                names = f"{kind}.{one.function_name} is `async def` and {kind}.{other.function_name} is not"
                raise TargetError(f"{names}: write `async def` for all served methods or for none")

    @property
    def function_name(self) -> str:
        """The name of the method that this serves, in its class."""
        return self._function_name

    @property
    def is_async(self) -> bool:
        """Whether `predict` is `async def`."""
        return is_async(self._predict()[0])

    @cached_property
    def signature(self) -> Signature:
        """What `predict` takes and returns. Read when first asked for, so types may be defined below the class."""
        function, is_method = self._predict()
        batched = bool(self.declared.get("batched", True))
        named: Any = {"is_method": is_method, "names": self._names, "arguments": self._arguments()}
        if self.has_steps:
            admit, _ = function_of(inspect.getattr_static(self.obj, "admit"))
            signature = read_step_signature(admit, function, **named)
        else:
            signature = read_signature(function, batched=batched, **named)
        self._names = None
        output = signature.output
        part = None if output.part is None else replace(output.part, method=self.function_name)
        return replace(signature, output=replace(output, method=self.function_name, part=part))

    def _predict(self) -> tuple[Callable[..., object], bool]:
        if not isinstance(self.obj, type):
            return self.obj, False
        return function_of(inspect.getattr_static(self.obj, self._function_name))

    def _arguments(self) -> dict[Any, Any]:
        """Return what the TypeVars of the class that defines the method stand for in the deployed class."""
        if not isinstance(self.obj, type):
            return {}
        owner = next((kind for kind in self.obj.__mro__ if self._function_name in vars(kind)), self.obj)
        return class_arguments(self.obj, owner, self._names)

    def compiled_terms(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Return `group_by` and `cost` as the manifest has them; TargetError if the front could not evaluate them."""
        where, declared = f"deployment `{self.name}`", self.signature.input
        return (
            grouping.compile_group_by(where, self.group_by, declared),
            grouping.compile_cost(where, self.cost, declared),
        )

    def compiled_task(self) -> dict[str, Any] | None:
        """Return the task as the manifest has it; TargetError if `predict` cannot do it."""
        batched = bool(self.declared.get("batched", True))
        return tasks.compile_task(self.name, self.task, self.signature, batched=batched)

    def instantiate(self, init: Mapping[str, object]) -> Callable[..., Any]:
        """Load the model and return its `predict`."""
        return self.load(init).predict

    def load(self, init: Mapping[str, object]) -> LoadedModel:
        """Construct the class with `init`; of a function there is nothing to construct."""
        if not isinstance(self.obj, type) and init:
            raise ConfigError(f"deployment `{self.name}` is a function: it takes no constructor arguments")
        coroutines, steps = None, None
        if self.is_async:
            from jitney.deployments.coroutines import Coroutines  # noqa: PLC0415 - the front needs no `asyncio`

            coroutines = Coroutines()
        if not isinstance(self.obj, type):
            predict, close, check, others = self.obj, None, None, {}
        else:
            model: Any = self.obj(**constructor_arguments(self.name, self.obj, init))
            check_instance(model)
            if self.has_steps:
                steps = step_functions(model)
            answering: Any = as_generator(steps) if steps is not None else getattr(model, self._function_name)
            predict, close, check = (
                answering,
                getattr(model, "close", None),
                getattr(model, "check", None),
            )
            check = check if _takes_nothing(check) else None
            others = {name: getattr(model, name) for name in (each.function_name for each in self.methods)}
        if coroutines is None:
            methods = {name: LoadedModel(one) for name, one in others.items()}
            return LoadedModel(predict, close, check, steps=steps, methods=methods)
        coroutines.predict = predict
        check = check and coroutines.waiting(check)
        methods = {
            name: LoadedModel(coroutines.waiting(one), coroutines=coroutines.of(one)) for name, one in others.items()
        }
        return LoadedModel(coroutines.waiting(predict), coroutines.ending(close), check, coroutines, methods=methods)


def _has_steps(obj: Any) -> bool:
    def has(name: str) -> bool:
        return callable(getattr(obj, name, None))

    return isinstance(obj, type) and has("admit") and has("step") and not has("predict")


def _check_pair(obj: Any, method: str | None) -> None:
    """Refuse a class that would lose its steps: it has half of them, or `predict` too."""
    if not isinstance(obj, type) or method is not None:
        return
    has = {name: callable(getattr(obj, name, None)) for name in ("predict", "admit", "step")}
    kind = obj.__qualname__
    if has["admit"] and has["step"]:
        if has["predict"]:
            raise TargetError(f"{kind} has `predict` and `admit`/`step`: keep one")
    elif not has["predict"]:
        for one, other in (("admit", "step"), ("step", "admit")):
            if has[one] and not marked(obj):
                raise TargetError(f"{kind} has `{one}`, but no `{other}`: a model that works in steps has both")


def _check_steps(deployment: Deployment) -> None:
    kind = deployment.obj.__qualname__
    if deployment.methods:
        raise TargetError(f"{kind} works in steps, so it serves no method of @jitney.method: put them in another class")
    if deployment.declared.get("batched") is False:
        raise TargetError(f"{kind} works in steps, which take several items: leave batched=False out")
    for name in ("admit", "step", "release"):
        if is_async(getattr(deployment.obj, name, None)):
            raise TargetError(f"{kind}.{name} is `async def`: write `def {name}`; one thread runs all steps")
        if name != "admit" and not _takes_states(deployment.obj, name):
            raise TargetError(
                f"{kind}.{name} takes one list, the states of several items: write `def {name}(self, states)`"
            )


def _takes_states(kind: object, name: str) -> bool:
    """Whether a method can be called with one list. What is not a plain method is not looked into."""
    method: object = inspect.getattr_static(kind, name, None)
    if not inspect.isfunction(method):
        return True
    try:
        inspect.signature(method).bind(None, [])
    except TypeError:
        return False
    return True


@overload
def deployment(obj: _Served, /) -> _Served: ...
@overload
def deployment(
    *,
    name: str | None = None,
    route: str | None = None,
    group_by: Sequence[grouping.Term] = (),
    cost: grouping.Term | None = None,
    task: str | None = None,
    examples: Sequence[Any] = (),
    **options: Unpack[DeploymentKeywords],
) -> Callable[[_Served], _Served]: ...
def deployment(obj: Any = None, /, **options: Any) -> Any:
    """Serve a class that has `predict`, or a function that is one. The class or function stays what it was.

    `name` is its name and path; `route` is a second path, such as "/v1/predict"; `group_by` and `cost` say what may
    share a batch; `task` is what the OpenAI API calls it for ("embedding", "chat", ...); `examples` are
    inputs for warm-up, checks and docs; every other keyword is an option of `jitney.config.DeploymentOptions`.
    """
    names = _names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def mark(served: Any) -> Any:
        if not isinstance(served, type) and not inspect.isfunction(served):
            hint = f"; did you mean @jitney.deployment(name={served!r})?" if isinstance(served, str) else ""
            raise TargetError(f"@jitney.deployment is for a class or a function, not for {served!r}{hint}")
        _warn_of_hooks(served)
        marked = Deployment(served, options, names)
        _refuse_a_second(marked, vars(served).get(MARK))
        setattr(served, MARK, marked)
        return served

    return mark if obj is None else mark(obj)


_HOOKS = {
    "setup": "load the model in __init__",
    "decode_request": "predict takes items as its annotations say",
    "encode_response": "answers are what predict returns",
}
"""What other servers call, and what to do here."""


def _warn_of_hooks(served: Any) -> None:
    own: dict[str, Any] = dict(vars(served)) if isinstance(served, type) else {}
    for name in _HOOKS.keys() & own.keys():
        # A class with an __init__ may call its own `setup` there.
        if name != "setup" or "__init__" not in own:
            warnings.warn(f"{served.__qualname__}.{name} is never called: {_HOOKS[name]}", stacklevel=4)


def _refuse_a_second(marked: Deployment, held: Deployment | None) -> None:
    """Refuse another deployment of the very same class or function: the last one alone would be served."""
    if held is None or held.obj is not marked.obj or held.name == marked.name:
        return
    kind = marked.obj.__qualname__
    remedy = f"a subclass of it: class Other({kind}): ..." if isinstance(marked.obj, type) else "another function"
    raise TargetError(f"{kind} is deployed already, as `{held.name}`; for `{marked.name}` decorate {remedy}")


def _names_around(frame: Any) -> dict[str, object] | None:
    """Keep the names of the function around a decorated class: its annotations may be strings that need them."""
    return None if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _takes_nothing(function: object) -> bool:
    """Whether this can be called without arguments; a `check` that needs some is the model's own affair."""
    try:
        return callable(function) and bool(inspect.signature(function).bind() or True)
    except (TypeError, ValueError):
        return False


def _checked_name(name: object, obj: Any, *, is_given: bool) -> str:
    hint = "" if is_given else "; give it a name: @jitney.deployment(name=...)"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{obj.__qualname__}: the name {name!r} is not 1 to 64 of A-Z a-z 0-9 . _ - (not . first){hint}"
        )
    if name in RESERVED:
        raise ConfigError(f"{obj.__qualname__}: the name `{name}` belongs to the server{hint}")
    return name


def _checked_route(name: str, route: object) -> str | None:
    """Return the path if it is one; the front refuses those that clash with others."""
    if route is None or (isinstance(route, str) and _ROUTE.fullmatch(route)):
        return route
    raise ConfigError(
        f'deployment `{name}`: route={route!r} is not a path: write "/a" or "/a/b", with A-Z a-z 0-9 . _ ~ - between '
        "slashes"
    )


def _terms(name: str, group_by: Any) -> tuple[grouping.Term, ...]:
    if isinstance(group_by, (str, grouping.length, grouping.bucket)):
        raise ConfigError(f"deployment `{name}`: group_by is a tuple: group_by=({group_by!r},)")
    return tuple(group_by)


def _examples(name: str, examples: Any) -> list[Any]:
    if isinstance(examples, (str, bytes, dict)):
        raise ConfigError(f"deployment `{name}`: examples is a list of inputs: examples=[{examples!r}]")
    return list(examples)


def _declared(name: str, options: Mapping[str, Any]) -> dict[str, object]:
    known = [*deployment_options(), "name", "route", "group_by", "cost", "task", "examples"]
    wrong = [unknown("option", key, known) for key in options if key not in known]
    if wrong:
        raise ConfigError(f"deployment `{name}` (decorator): {'; '.join(wrong)}")
    where = (f"deployment `{name}` (decorator)", "decorator")
    return {key: parse(deployment_options(), where, key, value) for key, value in options.items()}
