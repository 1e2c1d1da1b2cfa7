"""Mosec, as https://mosecorg.github.io/mosec/reference/interface.html has it: one worker, max_wait_time in ms."""

from typing import Any

import models
from mosec import Server, Worker


class Served(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.model = models.load()

    def forward(self, data: list[Any]) -> list[Any]:
        return self.model(data)


class Bytes(Served):
    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data


if __name__ == "__main__":
    server = Server()
    worker = Bytes if models.MODEL == "bytes" else Served
    wait_ms = models.SETTINGS.get("max_wait_time", 5)
    server.append_worker(worker, num=1, max_batch_size=models.MAX_BATCH_SIZE, max_wait_time=wait_ms)
    server.run()
