"""Why a place has no machine yet, in words that every client may read."""

from collections.abc import Mapping, Sequence
from typing import Any

STARTING = "Ray starts an agent"


def why_pending(needs: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], free: Mapping[str, float]) -> str:
    """Return what a place with these needs waits for. `nodes` is what `ray.nodes()` says, `free` what is not in use."""
    asked = {"CPU": needs["num_cpus"], "GPU": needs["num_gpus"], **needs["resources"]}
    asked = {name: amount for name, amount in asked.items() if amount > 0}
    alive = [node for node in nodes if node["Alive"]]
    fitting = [node for node in alive if _has(node.get("Labels", {}), needs["labels"])]
    if alive and not fitting:
        return f"no machine of the Ray cluster has the labels {_pairs(needs['labels'])}"
    for name, amount in asked.items():
        if all(node["Resources"].get(name, 0.0) < amount for node in fitting):
            return f"no machine of the Ray cluster has {amount:g} {name}"
    if not any(all(node["Resources"].get(name, 0.0) >= amount for name, amount in asked.items()) for node in fitting):
        return f"no machine of the Ray cluster has all of {_pairs(asked)}"
    for name, amount in asked.items():
        if free.get(name, 0.0) < amount:
            return (
                f"the Ray cluster has no free {name}"
                if amount <= 1
                else f"the Ray cluster has no {amount:g} free {name}"
            )
    return STARTING


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
