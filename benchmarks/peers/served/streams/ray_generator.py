"""Ray Serve: `serve.batch` on a generator, as its page on dynamic request batching has it for streams."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import models
import parts
import ray
from ray import serve
from ray_server import START_WITHIN_S, give_up
from starlette.requests import Request
from starlette.responses import StreamingResponse


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1})
class Served:
    @serve.batch(max_batch_size=parts.MAX_ITEMS, batch_wait_timeout_s=models.SETTINGS.get("batch_wait_timeout_s", 0.01))
    async def write(self, items: list[Any]) -> AsyncIterator[list[Any]]:
        writings = [parts.begin(item) for item in items]
        while left := [writing for writing in writings if writing.left]:
            made = await asyncio.to_thread(parts.step, left) if parts.SLEEPS else parts.step(left)
            texts = dict(zip(map(id, left), made, strict=True))
            yield [parts.event(texts[id(writing)]) if id(writing) in texts else StopIteration for writing in writings]
            await asyncio.sleep(0)

    async def __call__(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self.write(await request.json()), media_type=parts.EVENTS)


if __name__ == "__main__":
    watch = threading.Timer(START_WITHIN_S, give_up)
    watch.daemon = True
    watch.start()
    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": models.PORT})
    serve.run(Served.bind(), route_prefix="/inference")
    watch.cancel()
    while True:
        time.sleep(60)
