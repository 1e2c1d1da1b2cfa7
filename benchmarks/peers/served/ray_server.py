"""Ray Serve with `serve.batch`, as https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html has it.

Many requests may be on their way to the replica, so that batches can fill (`max_ongoing_requests`), and what computes
leaves the replica's event loop alone, as its page on asyncio advises.
"""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import models
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

START_WITHIN_S = 75


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1})
class Served:
    def __init__(self) -> None:
        self.model = models.load()

    @serve.batch(
        max_batch_size=models.MAX_BATCH_SIZE, batch_wait_timeout_s=models.SETTINGS.get("batch_wait_timeout_s", 0.01)
    )
    async def infer(self, items: list[Any]) -> list[Any]:
        return await asyncio.to_thread(self.model, items) if models.COMPUTES else self.model(items)

    async def __call__(self, request: Request) -> Any:
        if models.MODEL == "bytes":
            return Response(await self.infer(await request.body()), media_type="application/octet-stream")
        return await self.infer(await request.json())


def give_up() -> None:
    """Ray waits without end for a node that died. The last output of the node is the reason."""
    said = Path("/tmp/ray/session_latest/logs/raylet.out").read_text(errors="replace").splitlines()
    print("Ray does not start:", *[line for line in said if "Check failed" in line][-1:], flush=True)
    os._exit(1)


if __name__ == "__main__":
    # A thread: where it waits, Ray does not look at signals.
    watch = threading.Timer(START_WITHIN_S, give_up)
    watch.daemon = True
    watch.start()
    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": models.PORT})
    serve.run(Served.bind(), route_prefix="/inference")
    watch.cancel()
    while True:
        time.sleep(60)
