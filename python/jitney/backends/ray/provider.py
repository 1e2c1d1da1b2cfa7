"""Which actors there should be and which there are: the difference is made up, the rest is reported."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from jitney.backends.ray.cluster import Actor, Cluster
from jitney.backends.ray.pending import why_pending

Say = Callable[[dict[str, Any]], None]
_REASONS_EVERY_S: Final = 1.0


class Provider:
    """The places of one front."""

    def __init__(
        self,
        cluster: Cluster,
        front: str,
        order: Mapping[str, Any],
        say: Say,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._order = order
        self._say = say
        self._wanted: dict[str, dict[str, Any]] = {}
        # Of a provider before this one: they are taken over with the next word of the front, or dropped.
        self._found: dict[str, Actor] = cluster.find(f"{front}/")
        self._actors: dict[str, Actor] = {}
        self._gone: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._reasons_at = -_REASONS_EVERY_S

    def want(self, connect: str, places: dict[str, dict[str, Any]], lost: Sequence[str]) -> None:
        """Make places that are missing, and take away those that are not wanted.

        New ones are not on machines of places that are lost, if there is room elsewhere.
        """
        self._wanted = places
        self._gone &= places.keys()
        for name in [name for name in self._actors if name not in places]:
            self._cluster.kill(self._actors.pop(name))
        found, self._found = self._found, {}
        for name, actor in found.items():
            if name in places:
                self._begin(name, actor, connect)
            else:
                self._cluster.kill(actor)
        avoided = self._nodes(lost) - self._nodes(self._actors.keys() - set(lost))
        for name, needs in places.items():
            if name not in self._actors and name not in self._gone:
                try:
                    actor = self._cluster.create(name, needs, sorted(avoided))
                except Exception as error:
                    self._end(name, str(error))
                else:
                    self._begin(name, actor, connect)
        self.look()

    def look(self) -> None:
        """Report actors that have ended, and what the others wait for."""
        for name, actor in list(self._actors.items()):
            if (why := self._cluster.ended(actor)) is not None:
                del self._actors[name]
                self._cluster.kill(actor)
                self._end(name, why)
        self._report_reasons()

    def end(self) -> None:
        """Take every place away."""
        for actor in (*self._actors.values(), *self._found.values()):
            self._cluster.kill(actor)
        self._cluster.leave([*self._actors, *self._found])

    def _nodes(self, names: Iterable[str]) -> set[str]:
        actors = [self._actors[name] for name in names if name in self._actors]
        return {actor.node for actor in actors if actor.node is not None}

    def _begin(self, name: str, actor: Actor, connect: str) -> None:
        needs = self._wanted[name]
        environment = json.loads(needs["runtime_env"] or "{}")
        order = {
            **self._order, "name": name, "connect": connect, "num_cpus": needs["num_cpus"],
            "num_gpus": needs["num_gpus"], "resources": needs["resources"],
            "variables": sorted(environment.get("env_vars", {})), "has_folder": "working_dir" in environment,
        }  # fmt: skip
        self._cluster.begin(actor, order)
        self._actors[name] = actor

    def _end(self, name: str, why: str) -> None:
        self._gone.add(name)
        self._say({"gone": {"place": name, "why": why}})

    def _report_reasons(self) -> None:
        pending = [name for name, actor in self._actors.items() if not self._cluster.has_begun(actor)]
        if pending and time.monotonic() - self._reasons_at < _REASONS_EVERY_S:
            return
        self._reasons_at = time.monotonic()
        reasons: dict[str, str] = {}
        if pending:
            nodes, free = self._cluster.nodes(), self._cluster.free()
            reasons = {name: why_pending(self._wanted[name], nodes, free) for name in pending}
        if reasons != self._reasons:
            self._reasons = reasons
            self._say({"pending": reasons})
