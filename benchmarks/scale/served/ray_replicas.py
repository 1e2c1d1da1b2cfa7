"""Ray Serve: replicas that sleep for each batch of up to 8 items, on the nodes of a cluster that runs already.

Settings come in the environment. Run as a program with the address of the cluster and the port.
"""

import asyncio
import os
import sys
import threading
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

BATCH = 8
BATCH_S = float(os.environ["BENCH_BATCH_S"])
REPLICAS = int(os.environ["BENCH_REPLICAS"])
WAITS_S = float(os.environ.get("BENCH_WAITS_S", "0.01"))
ONGOING = int(os.environ.get("BENCH_ONGOING", str(2 * BATCH)))
"""Requests that a replica may hold: one batch that runs, and one that waits."""


@serve.deployment(num_replicas=REPLICAS, max_ongoing_requests=ONGOING, ray_actor_options={"num_cpus": 0.01})
class SlowBatches:
    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAITS_S)
    async def infer(self, items: list[Any]) -> list[Any]:
        await asyncio.sleep(BATCH_S)
        return items

    async def __call__(self, request: Request) -> Any:
        return await self.infer(await request.json())


if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(SlowBatches.bind(), route_prefix="/slow_batches")
    threading.Event().wait()
