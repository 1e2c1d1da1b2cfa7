"""BentoML with adaptive batching, as https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html has it."""

from typing import Any

import bentoml
import models

service = bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 1024})

if models.MODEL == "bytes":

    @service
    class Served:
        """A batchable API takes lists in JSON; for a body of bytes there is a root input, one at a time."""

        def __init__(self) -> None:
            self.model = models.load()

        @bentoml.api(route="/inference")
        def inference(self, body: bytes, /) -> bytes:
            return self.model([body])[0]

else:

    @service
    class Served:
        """One call per batch."""

        def __init__(self) -> None:
            self.model = models.load()

        @bentoml.api(
            route="/inference",
            batchable=True,
            max_batch_size=models.MAX_BATCH_SIZE,
            max_latency_ms=models.SETTINGS.get("max_latency_ms", 60_000),
        )
        def inference(self, items: list[dict[str, str]]) -> list[Any]:
            return self.model(items)
