"""Models that answer with the trace that they are in."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jitney
import numpy as np
from opentelemetry import trace as otel
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=16)
class Telling:
    """Answers with the context for its own spans, and obeys words that break it."""

    def predict(self, texts: list[str]) -> list[str]:
        record("telling", texts)
        wait_at_gate()
        for text in texts:
            if text.startswith("slow"):
                time.sleep(0.3)
            if text.startswith("raise"):
                raise RuntimeError("the model is broken")
            if text.startswith("once"):
                kill_once(text)
        return [jitney.context().traceparent] * len(texts)


def kill_once(text: str) -> None:
    """End this worker, unless a worker has ended so before."""
    mark = Path(os.environ["JITNEY_TEST_CALLS"] + text)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@jitney.deployment(batched=False, max_batch_size=64)
class Outer:
    """Asks another model, and says which contexts both had."""

    telling = jitney.uses(Telling)

    async def predict(self, text: str) -> dict[str, str]:
        request = jitney.context().requests[0]
        return {
            "own": jitney.context().traceparent,
            "state": request.trace_state,
            "inner": await self.telling(text),
        }


@jitney.deployment(batched=False, max_batch_size=64)
class Spanning:
    """Asks another model in a span of OpenTelemetry below that of the server."""

    telling = jitney.uses(Telling)

    async def predict(self, text: str) -> str:
        _, trace, _, _ = jitney.context().traceparent.split("-")
        own = otel.SpanContext(int(trace, 16), 0xABC, is_remote=False, trace_flags=otel.TraceFlags(1))
        with otel.use_span(otel.NonRecordingSpan(own)):
            return await self.telling(text)


@jitney.deployment(max_batch_size=16)
class Speaking:
    """Answers word by word."""

    def predict(self, texts: list[str]) -> Iterator[list[str]]:
        yield ["a"] * len(texts)
        yield [jitney.context().traceparent] * len(texts)


@jitney.deployment(task="embedding", max_batch_size=16)
class Words:
    def predict(self, texts: list[str]) -> jitney.Embeddings:
        return jitney.Embeddings(np.ones((len(texts), 2), np.float32), [1] * len(texts))


@jitney.deployment(max_batch_size=16)
def clean(texts: list[str]) -> list[str]:
    return [text.strip() for text in texts]


Chained = jitney.chain(clean, Telling)
