"""The provider's decisions, with a fake Ray."""

from typing import Any

import pytest
from fake_ray import FakeRay, Handle
from jitney.backends.ray.cluster import Cluster
from jitney.backends.ray.provider import Provider

SECRET = "s" * 64


def needs(**changed: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "num_cpus": 1.0,
        "num_gpus": 0.0,
        "resources": {},
        "labels": {},
        "runtime_env": None,
        "spread": True,
    }
    return {**plain, **changed}


class Rig:
    def __init__(self, ray: FakeRay | None = None) -> None:
        self.ray = ray or FakeRay()
        self.lost: list[str] = []
        self.said: list[dict[str, Any]] = []
        cluster = Cluster.connect(self.ray, "head:6379", "jitney")
        self.provider = Provider(cluster, "front", {"secret": SECRET, "folder": "/code"}, self.said.append)

    def want(self, **places: dict[str, Any]) -> None:
        self.provider.want("tcp:10.0.0.9:7", {f"front/a/{name}": one for name, one in places.items()}, self.lost)

    def handle(self, number: str) -> Handle:
        return self.ray.handles[f"front/a/{number}"]


def test_each_place_is_a_detached_actor_that_ray_never_restarts() -> None:
    rig = Rig()
    rig.want(
        n1=needs(num_gpus=0.5, resources={"tpu": 4.0}, labels={"zone": "a"}, runtime_env='{"env_vars": {"A": "1"}}')
    )
    options = rig.handle("n1").options
    fixed = {"lifetime": "detached", "max_restarts": 0, "max_task_retries": 0, "namespace": "jitney"}
    assert options.items() >= fixed.items()
    assert (options["num_gpus"], options["resources"], options["label_selector"]) == (0.5, {"tpu": 4.0}, {"zone": "a"})
    assert (options["runtime_env"], options["scheduling_strategy"]) == ({"env_vars": {"A": "1"}}, "SPREAD")
    rig.want(n1=needs(), n2=needs(spread=False))
    assert rig.handle("n2").options["scheduling_strategy"] == "DEFAULT"
    assert len(rig.handle("n1").orders) == 1, "a place that is there is not asked for again"


def test_the_secret_goes_to_the_actor_and_not_into_what_the_cluster_keeps() -> None:
    rig = Rig()
    rig.want(n1=needs())
    assert rig.handle("n1").orders[0]["secret"] == SECRET
    assert SECRET not in repr(rig.handle("n1").options)


def test_what_is_not_wanted_any_more_is_taken_away() -> None:
    rig = Rig()
    rig.want(n1=needs(), n2=needs())
    rig.want(n2=needs())
    assert rig.ray.killed == ["front/a/n1"]
    rig.provider.end()
    assert (rig.ray.killed, rig.ray.handles) == (["front/a/n1", "front/a/n2"], {})


def test_the_next_provider_takes_over_what_is_wanted_and_ends_the_rest_of_its_front_only() -> None:
    first = Rig()
    first.want(n1=needs(), n2=needs())
    first.ray.handles["other/a/n1"] = Handle({"name": "other/a/n1", "namespace": "jitney"})
    second = Rig(first.ray)
    second.want(n1=needs())
    assert (first.ray.killed, sorted(first.ray.handles)) == (["front/a/n2"], ["front/a/n1", "other/a/n1"])
    assert len(second.handle("n1").orders) == 2, "the first order may never have arrived"


@pytest.mark.parametrize("how", ["the actor died", "the agent ended"])
def test_the_end_of_an_actor_is_reported_once_and_it_is_not_made_again_under_its_name(how: str) -> None:
    rig = Rig()
    rig.want(n1=needs())
    rig.handle("n1").begun.resolve("n")
    rig.handle("n1").ended.resolve(how if how == "the agent ended" else RuntimeError(f"{how}\n\tactor id 1"))
    rig.provider.look()
    rig.want(n1=needs())
    assert [one for one in rig.said if "gone" in one] == [{"gone": {"place": "front/a/n1", "why": how}}]
    assert "front/a/n1" not in rig.ray.handles


def test_a_new_place_is_not_on_the_machine_of_one_that_is_lost_if_there_is_room_elsewhere() -> None:
    rig = Rig()
    rig.want(n1=needs(), n2=needs(), n3=needs())
    for name, node in (("n1", "x"), ("n2", "y"), ("n3", "y")):
        rig.handle(name).begun.resolve(node)
    rig.provider.look()
    rig.lost = ["front/a/n1", "front/a/n2"]
    rig.want(n1=needs(), n2=needs(), n3=needs(), n4=needs(labels={"zone": "a"}))
    # Of y another place is there: that machine is not lost.
    assert rig.handle("n4").options["label_selector"] == {"zone": "a", "ray.io/node-id": "!in(x)"}
    assert rig.handle("n4").options["fallback_strategy"] == [{"label_selector": {"zone": "a"}}]


def test_an_actor_that_ray_cannot_reach_is_asked_again_and_not_given_up() -> None:
    class ActorUnavailableError(Exception):
        pass

    rig = Rig()
    rig.want(n1=needs())
    rig.handle("n1").begun.resolve("x")
    rig.handle("n1").ended.resolve(ActorUnavailableError())
    rig.provider.look()
    assert len(rig.handle("n1").orders) == 2
    assert not any("gone" in one for one in rig.said)


def test_what_ray_refuses_is_reported_with_its_words() -> None:
    rig = Rig()
    rig.ray.refuses = ValueError("bad label selector")
    rig.want(n1=needs())
    assert {"gone": {"place": "front/a/n1", "why": "bad label selector"}} in rig.said


def test_what_places_wait_for_is_said_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    rig = Rig()
    rig.ray.unused = {"CPU": 0.0}
    rig.want(n1=needs())
    rig.provider.look()
    assert rig.said == [{"pending": {"front/a/n1": "the Ray cluster has no free CPU"}}]
    rig.handle("n1").begun.resolve("n")
    rig.provider.look()
    assert rig.said[1:] == [{"pending": {}}]


def test_the_machine_of_the_front_is_found_among_those_of_the_cluster() -> None:
    ray = FakeRay()
    cluster = Cluster.connect(ray, "head:6379", "ns")
    assert (cluster.host(), ray.initialized["namespace"]) == ("10.0.0.9", "ns")
    assert Cluster.connect(ray, "ray://127.0.0.1:10001", "ns").host() == "127.0.0.1"
