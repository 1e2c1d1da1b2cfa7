"""Ray Serve: an ingress that passes each body through one more deployment, and an ensemble of four that sleep.

As https://docs.ray.io/en/latest/serve/model_composition.html composes models. Run as a program with the port.
"""

import asyncio
import sys
import threading

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

SLEEP_S = 0.02
OCTETS = "application/octet-stream"


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0.2})
class Echo:
    async def __call__(self, blob: bytes) -> bytes:
        return blob


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0.2})
class Sleeper:
    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0)
    async def __call__(self, blobs: list[bytes]) -> list[bytes]:
        await asyncio.sleep(SLEEP_S)
        return blobs


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0.2})
class TwoStages:
    def __init__(self, echo: serve.handle.DeploymentHandle) -> None:
        self.echo = echo

    async def __call__(self, request: Request) -> Response:
        return Response(await self.echo.remote(await request.body()), media_type=OCTETS)


@serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0.2})
class Ensemble:
    def __init__(self, *models: serve.handle.DeploymentHandle) -> None:
        self.models = models

    async def __call__(self, request: Request) -> Response:
        blob = await request.body()
        answers = await asyncio.gather(*(model.remote(blob) for model in self.models))
        return Response(answers[0], media_type=OCTETS)


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    sleepers = [Sleeper.options(name=name).bind() for name in ("first", "second", "third", "fourth")]
    serve.run(TwoStages.bind(Echo.bind()), name="stages", route_prefix="/two_stages")
    serve.run(Ensemble.bind(*sleepers), name="ensemble", route_prefix="/ensemble")
    serve.run(Sleeper.options(name="alone").bind(), name="alone", route_prefix="/unused")
    threading.Event().wait()
