"""As much of Ray as the provider calls, without a cluster: actors are names, and tests say what becomes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Reference:
    """A result that tests fill in."""

    value: Any = None
    is_done: bool = False

    def resolve(self, value: Any = None) -> None:
        self.value, self.is_done = value, True


@dataclass
class Handle:
    options: dict[str, Any]
    orders: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    begun: Reference = field(default_factory=Reference)
    ended: Reference = field(default_factory=Reference)

    @property
    def start(self) -> Any:
        return SimpleNamespace(remote=lambda order: self.orders.append(order) or self.begun)  # pyright: ignore

    @property
    def wait(self) -> Any:
        return SimpleNamespace(remote=lambda: self.ended)


class FakeRay:
    """A cluster of one machine."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}
        self.killed: list[str] = []
        self.initialized: dict[str, Any] = {}
        self.refuses: Exception | None = None
        self.resources = {"CPU": 4.0}
        self.unused = {"CPU": 4.0}
        self.util = SimpleNamespace(list_named_actors=self._listed)

    def init(self, **how: Any) -> None:
        self.initialized = how

    def shutdown(self) -> None:
        self.initialized = {}

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda: self._create(options)))  # pyright: ignore

    def get_actor(self, name: str, namespace: str) -> Handle:
        if self.handles[name].options["namespace"] != namespace:
            raise ValueError(name)
        return self.handles[name]

    def kill(self, handle: Handle, no_restart: bool) -> None:
        assert no_restart
        self.killed.append(handle.options["name"])
        self.handles.pop(handle.options["name"], None)

    def wait(self, references: Sequence[Reference], timeout: float) -> tuple[list[Reference], list[Reference]]:
        assert timeout == 0
        return [one for one in references if one.is_done], [one for one in references if not one.is_done]

    def get(self, reference: Reference) -> Any:
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": True, "NodeID": "n", "NodeManagerAddress": "10.0.0.9", "Resources": self.resources, "Labels": {}}
        ]

    def available_resources(self) -> dict[str, float]:
        return self.unused

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "n")

    def _create(self, options: dict[str, Any]) -> Handle:
        if self.refuses is not None:
            raise self.refuses
        self.handles[options["name"]] = Handle(options)
        return self.handles[options["name"]]

    def _listed(self, all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"name": name, "namespace": one.options["namespace"]} for name, one in self.handles.items()]
