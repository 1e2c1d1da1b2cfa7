"""Mosec with the same models: batches of 64, a wait of 5 ms. Arguments: MODEL PORT (the port goes to Mosec)."""

import os
import time
from typing import Any

from mosec import Server, Worker

MODEL = os.environ["BENCH_MODEL"]


class Noop(Worker):
    def forward(self, data: list[Any]) -> list[Any]:
        return data


class Raw(Noop):
    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data


class Sleepy(Worker):
    def forward(self, data: list[Any]) -> list[Any]:
        time.sleep(0.005 + 0.0001 * len(data))
        return data


if __name__ == "__main__":
    server = Server()
    worker = {"noop": Noop, "raw": Raw, "sleepy": Sleepy}[MODEL]
    server.append_worker(worker, num=1, max_batch_size=64, max_wait_time=5)
    server.run()
