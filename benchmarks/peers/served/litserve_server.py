"""LitServe with batching, as https://lightning.ai/docs/litserve/features/batching has it; fast_queue is ZeroMQ."""

from typing import Annotated, Any

import litserve
import models
from fastapi import Body, Response


class Served(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.model = models.load()

    def decode_request(self, request):  # without a type it is the JSON of the body
        return request

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, batch: list[Any]) -> list[Any]:
        return self.model(batch)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Any:
        return output


class Bytes(Served):
    def decode_request(self, request: Annotated[bytes, Body()]) -> bytes:
        return request

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    api = (Bytes if models.MODEL == "bytes" else Served)(
        api_path="/inference",
        max_batch_size=models.MAX_BATCH_SIZE,
        batch_timeout=models.SETTINGS.get("batch_timeout", 0.005),
    )
    server = litserve.LitServer(
        api, accelerator="cpu", workers_per_device=1, fast_queue=models.SETTINGS.get("fast_queue", False)
    )
    server.run(host="127.0.0.1", port=models.PORT, log_level="warning", generate_client_file=False, access_log=False)
