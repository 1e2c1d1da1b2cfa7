"""The manifest: all that the front knows of user code. Its form is read in `crates/core`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jitney.codecs.plain import plain
from jitney.config.layers import Resolved
from jitney.deployments.classes import advised_target
from jitney.deployments.composed.composition import ComposedDeployment
from jitney.deployments.configured import ConfiguredDeployment
from jitney.deployments.deployment import Deployment
from jitney.errors import TargetError
from jitney.failures import one_line
from jitney.signature.annotations import Output
from jitney.signature.arrays import ArraySpec


def manifest(target: str, resolved: Sequence[tuple[Deployment, Resolved]]) -> dict[str, Any]:
    """Say all that the front must know of a target, in the form of `crates/core/src/config/manifest.rs`."""
    return {
        "target": target,
        "deployments": [_manifest(each, options, found) for found, options in resolved for each in found.served],
    }


def _manifest(found: Deployment, resolved: Resolved, owner: Deployment) -> dict[str, Any]:
    taken, returned = found.signature.input, found.signature.output
    group_by, cost = found.compiled_terms()
    init = resolved.shown_init()
    is_concurrent = found.is_async and not resolved.options.batched
    return {
        "name": found.name,
        "route": found.route,
        **({"method": {"deployment": owner.name, "name": found.function_name}} if owner.methods else {}),
        "doc": found.doc,
        "options": resolved.options.to_dict()
        | ({"concurrent": True} if is_concurrent else {})
        | ({"steps": True} if found.has_steps else {}),
        "option_sources": dict(resolved.sources),
        **({"init": init} if init else {}),
        "input": {
            "kind": taken.kind,
            "name": taken.name,
            "arrays": _arrays(taken.arrays),
            "schema": plain(taken.schema),
        },
        "output": _output(returned),
        "task": found.compiled_task(),
        "group_by": group_by,
        "cost": cost,
        **_others(owner, resolved),
        "examples": [
            _example(found.name, place, _by_name(example, taken.arrays)) for place, example in enumerate(found.examples)
        ],
    }


def _others(owner: Deployment, resolved: Resolved) -> dict[str, Any]:
    """Say which other deployments are called, and by whom."""
    if isinstance(owner, ComposedDeployment):
        owner.check_options(resolved)
        members = [member for _, member in owner.composition.members]
        used: dict[str, Any] = {one.name: one if isinstance(one, ConfiguredDeployment) else one.obj for one in members}
        return {**_used(used), "composed": owner.composition.to_dict()}
    return _used({use.name: use.target for use in owner.uses.values()}) if owner.uses else {}


def _used(used: Mapping[str, Any]) -> dict[str, Any]:
    targets = {name: advised_target(one, name) for name, one in used.items()}
    return {"uses": sorted(used), "use_targets": {name: target for name, target in targets.items() if target}}


def _output(returned: Output) -> dict[str, Any]:
    part = {} if returned.part is None else {"part": _output(returned.part)}
    return {"kind": returned.kind, "arrays": _arrays(returned.arrays), "schema": plain(returned.schema), **part}


def _example(name: str, place: int, example: object) -> object:
    try:
        return plain(example)
    except Exception as error:
        raise TargetError(
            f"deployment `{name}`: examples[{place}] cannot be written as JSON: {one_line(error)}"
        ) from error


def _by_name(example: object, arrays: Sequence[ArraySpec]) -> object:
    """Say several arrays as clients send them: an example may be a tuple in the order of the parameters."""
    if len(arrays) < 2 or not isinstance(example, (tuple, list)):
        return example
    parts = cast("Sequence[object]", example)
    if len(parts) != len(arrays):
        return parts  # the worker says so
    return dict(zip((spec.name for spec in arrays), parts, strict=True))


def _arrays(specs: Sequence[ArraySpec]) -> list[dict[str, object]]:
    return [spec.to_dict() for spec in specs]
