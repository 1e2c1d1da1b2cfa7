"""Handles of models, with a fake engine: what is looked up when, and what is left of a deadline."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import jitney
import numpy as np
import pytest
from jitney.codecs import tags
from jitney.embedded.handles import Models, SyncModels

MANIFEST: dict[str, Any] = {"input": {"kind": "text", "arrays": []}, "output": {"kind": "text", "arrays": []}}
PIXELS: dict[str, Any] = {"input": {"kind": "image", "arrays": []}, "output": {"kind": "text", "arrays": []}}


class FakeEngine:
    """An engine, or a connection that may be lost."""

    is_of_worker = False

    def __init__(self, **manifests: Any) -> None:
        self.now: dict[str, Any] = manifests
        self.sent: list[tuple[Any, Any, float | None]] = []

    def entrance(self, name: str) -> Any:
        return SimpleNamespace(call_and_wait=lambda *_: (tags.TEXT, name, None))  # pyright: ignore[reportUnknownLambdaType]

    def manifests(self) -> str:
        return json.dumps(self.now)

    def failure(self) -> None:
        return None

    def metrics(self) -> None:
        return None

    def mailbox(self) -> Any:
        """Stand in for the mailbox of the loop: answers at once."""

        def call(_: Any, tag: int, data: Any, timeout_s: float | None, *__: Any) -> Any:
            self.sent.append((tag, data, timeout_s))
            future = asyncio.get_running_loop().create_future()
            future.set_result((tags.TEXT, "seen", None))
            return future, 1

        def call_many(_: Any, items: list[Any], timeout_s: float | None, *__: Any) -> Any:
            self.sent.append((None, items, timeout_s))
            future = asyncio.get_running_loop().create_future()
            future.set_result([(tags.TEXT, "seen", None) for _ in items])
            return future, 1

        return SimpleNamespace(call=call, call_many=call_many)


def sync(engine: FakeEngine) -> SyncModels:
    return SyncModels(cast("Any", engine))


def test_a_connection_that_is_lost_at_first_has_its_models_later() -> None:
    engine = FakeEngine()
    models = sync(engine)
    for look_up in (lambda: models["shout"], lambda: models.shout):
        with pytest.raises(jitney.Disconnected, match="no connection"):
            look_up()
    engine.now = {"shout": MANIFEST}
    assert models.shout("x") == "shout"
    assert models["shout"]("x") == "shout"


def test_a_deployment_that_a_server_has_since_a_reconnection_is_found() -> None:
    engine = FakeEngine(shout=MANIFEST)
    models = sync(engine)
    with pytest.raises(jitney.NotFound, match="there is no deployment 'whisper', but shout"):
        _ = models["whisper"]
    with pytest.raises(AttributeError, match="there is no deployment 'whisper'"):
        _ = models.whisper
    engine.now["whisper"] = MANIFEST
    assert models.whisper("x") == "whisper"
    assert set(dir(models)) >= {"shout", "whisper", "metrics"}


def test_the_last_manifests_stay_while_there_is_no_connection() -> None:
    engine = FakeEngine(shout=MANIFEST)
    models = sync(engine)
    engine.now = {}
    with pytest.raises(jitney.NotFound, match="but shout"):
        _ = models["whisper"]
    assert models.shout("x") == "shout"


@pytest.mark.parametrize("many", [False, True])
def test_the_deadline_counts_while_images_are_encoded(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("jitney.embedded.models.monotonic", lambda: now[0])

    class Slow(jitney.Image):
        def encode(self) -> bytes:
            now[0] += 1.5
            return b"file"

    async def main(timeout_s: float | None) -> float | None:
        engine = FakeEngine(look=PIXELS)
        model = Models(cast("Any", engine), cast("Any", engine)).look
        image = Slow(np.zeros((2, 2), np.uint8))
        await (model.many([image], timeout_s=timeout_s) if many else model(image, timeout_s=timeout_s))
        return engine.sent[0][2]

    assert asyncio.run(main(2.0)) == 0.5
    left = asyncio.run(main(1.0))
    assert left is not None and 0 < left < 1e-6
    assert asyncio.run(main(None)) is None


def test_images_are_encoded_though_the_programs_own_threads_are_busy() -> None:
    async def main() -> None:
        engine, is_free = FakeEngine(look=PIXELS), threading.Event()
        with ThreadPoolExecutor(1) as own:
            asyncio.get_running_loop().set_default_executor(own)
            busy = asyncio.create_task(asyncio.to_thread(is_free.wait))
            try:
                await asyncio.sleep(0)
                image = jitney.Image(np.zeros((2, 2), np.uint8))
                async with asyncio.timeout(20):
                    await Models(cast("Any", engine), cast("Any", engine)).look(image)
            finally:
                is_free.set()
            await busy
        assert engine.sent[0][0] == tags.BYTES

    asyncio.run(main())
