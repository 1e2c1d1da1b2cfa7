"""Mosec: a worker that sends events, as its example of server-sent events has it. A batch runs to its last item."""

from typing import Any

import models
import parts
from mosec import Server, SSEWorker


class Served(SSEWorker):
    def forward(self, data: list[Any]) -> list[Any]:
        writings = [parts.begin(item) for item in data]
        while left := [place for place, writing in enumerate(writings) if writing.left]:
            made = parts.step([writings[place] for place in left])
            for place, part in zip(left, made, strict=True):
                self.send_stream_event(part, index=place)
        return data


if __name__ == "__main__":
    server = Server()
    wait_ms = models.SETTINGS.get("max_wait_time", 5)
    server.append_worker(Served, num=1, max_batch_size=parts.MAX_ITEMS, max_wait_time=wait_ms)
    server.run()
