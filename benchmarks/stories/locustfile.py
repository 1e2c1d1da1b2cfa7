"""Users of a text-to-image service, for Locust: 1, or 8 of whom one more comes every 50 s.

    locust -f locustfile.py --headless --users 8 --spawn-rate 100 --host http://127.0.0.1:8000

Environment: STORY_STEP_S between two users (default 50), STORY_RUN_S (600), STORY_SIZES `grouped` or `mixed`,
STORY_PATH (/text_to_image), STORY_RECORD, a file that gets a line of JSON per picture. Every picture is looked at: is
it whole, is it the one that was asked for, did other sizes share its batch?
"""

import itertools
import json
import os
import random
import time
from typing import Any

import gevent
from locust import HttpUser, constant, events, task

from stories.pictures import Order, said_in

STEP_S = float(os.environ.get("STORY_STEP_S", "50"))
RUN_S = float(os.environ.get("STORY_RUN_S", "600"))
PATH = os.environ.get("STORY_PATH", "/text_to_image")
IS_MIXED = os.environ.get("STORY_SIZES", "grouped") == "mixed"
SIZES = ((512, 512, 20, 7.5), (512, 512, 20, 5.0), (640, 512, 20, 7.5), (512, 512, 30, 7.5))
record = open(os.environ.get("STORY_RECORD", os.devnull), "w")  # noqa: SIM115  closed with the process
numbers = itertools.count()
begin = 0.0


@events.test_start.add_listener
def started(environment: Any, **_: Any) -> None:
    global begin  # noqa: PLW0603  the users of this process share their clock
    begin = time.perf_counter()
    gevent.spawn_later(RUN_S, environment.runner.quit)


@events.quitting.add_listener
def ended(**_: Any) -> None:
    record.close()


class Painter(HttpUser):
    """Asks for a picture, looks at it, asks for the next."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.number = next(numbers)
        self.random = random.Random(self.number)
        self.asked = 0
        gevent.sleep(max(0.0, begin + self.number * STEP_S - time.perf_counter()))

    @task
    def paint(self) -> None:
        self.asked += 1
        sizes = self.random.choice(SIZES) if IS_MIXED else SIZES[0]
        order = Order(f"picture {self.asked} of user {self.number}", *sizes)
        sent = time.perf_counter()
        with self.client.post(PATH, json=order._asdict(), stream=True, catch_response=True) as answer:
            try:
                picture = b"".join(answer.iter_content(8192))
                said = said_in(picture)
                is_right = answer.status_code == 200 and Order(*said["order"]) == order
            except (OSError, ValueError, KeyError) as error:
                said, is_right = {"batch": {}}, False
                answer.failure(str(error))
        now = time.perf_counter()
        line = {"sent_s": sent - begin, "done_s": now - begin, "is_right": is_right, **said["batch"]}
        if not record.closed:
            record.write(json.dumps(line) + "\n")
