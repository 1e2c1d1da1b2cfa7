"""Models whose `predict` is `async def`: one item each, and whole batches."""

import asyncio
import threading

import jitney
from witness import is_gate_shut, record


@jitney.deployment(batched=False, max_batch_size=8)
class Single:
    """One text, reversed; `held…` waits for the gate, `forever…` for its cancellation, `stuck` stops the event loop."""

    async def predict(self, text: str) -> str:
        record("predict", [text])
        try:
            while text.startswith("forever") or (text.startswith(("held", "blocker")) and is_gate_shut()):
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            record("cancelled", [text])
            raise
        finally:
            record("end", [text])
        if text == "bad":
            raise ValueError("this is a bad one")
        if text == "stuck":
            threading.Event().wait()
        return text[::-1]

    async def close(self) -> None:
        await asyncio.sleep(0)
        record("close", [])


@jitney.deployment(max_batch_size=8)
async def whole(texts: list[str]) -> list[str]:
    """Texts, reversed."""
    record("predict", texts)
    await asyncio.sleep(0)
    if "bad" in texts:
        raise ValueError("this is a bad one")
    return [text[::-1] for text in texts]
