"""All calls of Ray. Ray itself is an argument: it is not installed everywhere, and tests have a fake one."""

import json
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jitney.backends.ray.place import Place
from jitney.backends.ray.reach import AUTO, CLIENT

_NODE: Final = "ray.io/node-id"
"""The label that Ray itself gives to each machine."""
_UNAVAILABLE: Final = "ActorUnavailableError"
"""The network to an actor failed. It may live on, and whether its worker is lost is not decided by Ray."""
_LEAVE_S: Final = 5.0
"""Actors that were killed have ended within this."""


@dataclass
class Actor:
    """An actor, and what it was asked."""

    handle: Any
    order: Mapping[str, Any] | None = None
    begun: Any = None
    """Resolves when its agent runs, to the machine."""
    node: str | None = None
    """The machine, once it is known."""
    ended: Any = None
    """Resolves when its agent has ended; an error says that the actor has."""


class Cluster:
    """A connection to a cluster."""

    def __init__(self, ray: Any, address: str, namespace: str) -> None:
        self._ray = ray
        self._address = address
        self._namespace = namespace

    @classmethod
    def connect(cls, ray: Any, address: str, namespace: str) -> "Cluster":
        """Connect to the cluster at HOST:PORT, ray://HOST:PORT, or the one of this machine (`auto`)."""
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING)
        return cls(ray, address, namespace)

    def address(self) -> str:
        """Return HOST:PORT, or ray://HOST:PORT, at which the cluster is reached."""
        return self._address if self._address != AUTO else str(self._ray.get_runtime_context().gcs_address)

    def host(self) -> str:
        """Return the address of this machine, as the machines of the cluster reach it."""
        if self._address.startswith(CLIENT):
            # Of a program outside of the cluster, Ray knows only the machine through which it is connected.
            host, _, port = self._address.removeprefix(CLIENT).rpartition(":")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, int(port)))  # sends nothing
                return str(probe.getsockname()[0])
        own = self._ray.get_runtime_context().get_node_id()
        return next(str(node["NodeManagerAddress"]) for node in self._ray.nodes() if node["NodeID"] == own)

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return the machines of the cluster."""
        return self._ray.nodes()

    def free(self) -> Mapping[str, float]:
        """Return what is not in use, of all machines together."""
        return self._ray.available_resources()

    def names(self, prefix: str) -> list[str]:
        """Return the names of actors that begin with this."""
        actors = self._ray.util.list_named_actors(all_namespaces=True)
        mine = [str(actor["name"]) for actor in actors if actor["namespace"] == self._namespace]
        return [name for name in mine if name.startswith(prefix)]

    def find(self, prefix: str) -> dict[str, Actor]:
        """Return the actors whose names begin with this."""
        found: dict[str, Actor] = {}
        for name in self.names(prefix):
            try:
                found[name] = Actor(self._ray.get_actor(name, namespace=self._namespace))
            except ValueError:
                continue  # it has ended meanwhile
        return found

    def create(self, name: str, needs: Mapping[str, Any], avoided: Sequence[str] = ()) -> Actor:
        """Ask for an actor, on one of the avoided machines only if there is no room elsewhere.

        It gets no arguments: the cluster keeps them, and all its users can read them.
        """
        options: dict[str, Any] = {
            "name": name,
            "namespace": self._namespace,
            "lifetime": "detached",
            "max_restarts": 0,
            "max_task_retries": 0,
            "num_cpus": needs["num_cpus"],
            "num_gpus": needs["num_gpus"],
            "resources": dict(needs["resources"]),
            "scheduling_strategy": "SPREAD" if needs["spread"] else "DEFAULT",
        }
        labels = dict(needs["labels"])
        if avoided:
            options["label_selector"] = {**labels, _NODE: f"!in({','.join(avoided)})"}
            options["fallback_strategy"] = [{"label_selector": labels}]
        elif labels:
            options["label_selector"] = labels
        if needs["runtime_env"]:
            options["runtime_env"] = self._uploaded(json.loads(needs["runtime_env"]))
        return Actor(self._ray.remote(Place).options(**options).remote())

    def begin(self, actor: Actor, order: Mapping[str, Any]) -> None:
        """Have an actor start its agent, unless it runs already. The cluster does not keep the order."""
        actor.order = order
        actor.begun = actor.handle.start.remote(dict(order))
        actor.ended = actor.handle.wait.remote()

    def has_begun(self, actor: Actor) -> bool:
        """Whether the agent of an actor runs."""
        return actor.node is not None or self._is_done(actor.begun)

    def ended(self, actor: Actor) -> str | None:
        """Return why an actor or its agent has ended; None if it has not."""
        for reference in (actor.begun, actor.ended):
            if not self._is_done(reference):
                return None
            try:
                result = self._ray.get(reference)
            except Exception as error:
                if type(error).__name__ == _UNAVAILABLE and actor.order is not None:
                    self.begin(actor, actor.order)
                    return None
                # The first line says what happened; the others are ids.
                return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            if reference is actor.ended:
                return str(result)
            actor.node = result
        return None

    def kill(self, actor: Actor) -> None:
        """End an actor, wherever it is and whatever it waits for."""
        self._ray.kill(actor.handle, no_restart=True)

    def leave(self, names: Sequence[str]) -> None:
        """Wait until these actors have ended, but not for long, and disconnect."""
        end = time.monotonic() + _LEAVE_S
        while names and time.monotonic() < end and set(self.names("")) & set(names):
            time.sleep(0.05)
        self._ray.shutdown()

    def _is_done(self, reference: Any) -> bool:
        done, _ = self._ray.wait([reference], timeout=0)
        return bool(done)

    def _uploaded(self, environment: dict[str, Any]) -> dict[str, Any]:
        """Upload folders of this machine. Ray itself does so for a whole program only, and not for one actor."""
        try:
            from ray._private.runtime_env.py_modules import (  # noqa: PLC0415  # pyright: ignore
                upload_py_modules_if_needed,  # pyright: ignore[reportUnknownVariableType]
            )
            from ray._private.runtime_env.working_dir import (  # noqa: PLC0415  # pyright: ignore
                upload_working_dir_if_needed,  # pyright: ignore[reportUnknownVariableType]
            )
        except ImportError:
            return environment  # of another version: it says what it does not take
        environment = upload_py_modules_if_needed(environment, include_gitignore=True)  # pyright: ignore
        return upload_working_dir_if_needed(environment, include_gitignore=True)  # pyright: ignore
