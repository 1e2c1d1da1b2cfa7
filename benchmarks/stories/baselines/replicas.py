"""Ray Serve with as many replicas, batches as its documentation forms them. Arguments: PORT REPLICAS DEPLOYED."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from stories.accelerator import Accelerator
from stories.replicas import BATCH_S, SIZE


@serve.deployment(max_ongoing_requests=4 * SIZE, ray_actor_options={"num_cpus": 0})
class Upper:
    def __init__(self) -> None:
        self.accelerator = Accelerator(BATCH_S, 0)

    @serve.batch(max_batch_size=SIZE, batch_wait_timeout_s=0.1)
    async def predict(self, texts: list[str]) -> list[str]:
        await asyncio.to_thread(self.accelerator.run, len(texts))
        return [text.upper() for text in texts]

    async def __call__(self, request: Request) -> dict[str, Any]:
        return {"text": await self.predict((await request.json())["text"])}


def main(port: int, replicas: int, deployed: Path) -> None:
    """Serve until SIGTERM; write the file `deployed` when all replicas are there."""
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(Upper.options(num_replicas=replicas).bind(), route_prefix="/upper")
    deployed.touch()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
