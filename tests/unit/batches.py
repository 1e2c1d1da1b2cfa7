"""Batches through a replica, between a fake link and a `predict` of the test's own."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from fake_link import TAG_TEXT, AlwaysOverlapped, FakeBatch, FakeLink, FakeResults, Outcome
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.deployments.coroutines import Coroutines
from jitney.deployments.model import is_async
from jitney.signature.annotations import read_signature
from jitney.worker.gauge import Gauge
from jitney.worker.health import Health
from jitney.worker.pipeline import Loop
from jitney.worker.process import replica_class
from jitney.worker.replica import Replica
from jitney.worker.streams.tasks import TaskLoop

Predict = Callable[..., Any]

LOOPS: list[Coroutines] = []
"""Event loops of the models of a test, which its module ends."""


def make(predict: Predict, link: FakeLink, method: str = "predict", **options: Any) -> Replica:
    in_force = DeploymentOptions(**options)
    codec = Codec(read_signature(predict, batched=in_force.batched), in_force)
    coroutines = Coroutines() if is_async(predict) else None
    if coroutines is not None:
        coroutines.predict = predict
        LOOPS.append(coroutines)
        predict = coroutines.waiting(predict)
    return replica_class(codec)(
        cast("Any", link), predict, codec, in_force, cast("Any", FakeResults), coroutines=coroutines, method=method
    )


def tasks(replica: Replica, link: Any, batch_timeout_s: float = 60.0, **given: Any) -> TaskLoop:
    """Return the loop of the last model that was made: its items run side by side."""
    health = given.pop("health", None) or Health()
    return TaskLoop(
        link,
        LOOPS[-1],
        {"predict": replica},
        batch_timeout_s=batch_timeout_s,
        health=health,
        crash=lambda: pytest.fail("it crashed"),
        **given,
    )


def answer(predict: Predict, *batches: FakeBatch, overlapped: bool = False, **options: Any) -> FakeLink:
    """Run batches through the loop."""
    link = FakeLink(batches)
    replica = make(predict, link, **options)
    if is_async(predict) and not options.get("batched", True):
        link.arrives_at_once = not overlapped
        tasks(replica, link).run()
        return link
    gauge = AlwaysOverlapped() if overlapped else Gauge()
    Loop(cast("Any", link), replica, gauge, crash=lambda: pytest.fail("it crashed")).run()
    assert link.finished == [batch.id for batch in batches]
    return link


def one(predict: Predict, items: Sequence[Any], **options: Any) -> list[Outcome]:
    tag = options.pop("tag", TAG_TEXT)
    unwanted = options.pop("unwanted", set[int]())
    return answer(predict, FakeBatch(1, list(items), tag, unwanted=unwanted), **options).outcomes[1]
