"""Many items in one request, and the OpenAI route, compared with single native requests on one server, in turn."""

import http.client
import json
import statistics
import time

from protocols import Way, h2load
from servers import Running

JSON = ("content-type: application/json",)
ITEM = {"text": "a body of fifty-seven characters, as every server here gets"}
TEXT = "How many people live in London?"
CLIENTS, MANY, INPUTS, BATCH = 64, 64, 2048, 64
# The shortest time for 2,048 items: full batches of 64, one after the other, on one replica.
FULL_BATCHES_S = INPUTS / BATCH * (0.005 + BATCH * 0.0001)


def wait_ready(running: Running) -> None:
    """Wait for all deployments of the app, not only the one that was asked."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        connection.request("GET", "/readyz")
        if connection.getresponse().status == 200:
            return
        time.sleep(0.05)


def many(running: Running, seconds: float) -> dict[str, float]:
    """Items per second, one by one and by 64."""
    wait_ready(running)
    single = Way("/echo", json.dumps(ITEM).encode(), JSON, CLIENTS)
    batch = Way("/echo/batch", json.dumps([ITEM] * MANY).encode(), JSON, 4)
    one = h2load(running, single, max(seconds, 2))["rps"]
    by_64 = h2load(running, batch, max(seconds, 2))["rps"] * MANY
    return {"single_items_s": one, "batch_items_s": by_64, "batch_of_single": by_64 / one}


def openai(running: Running, seconds: float) -> dict[str, float]:
    """Requests per second for one text, natively and as the clients of the API ask."""

    def body(encoding: str) -> bytes:
        return json.dumps({"model": "vectors", "input": TEXT, "encoding_format": encoding}).encode()

    wait_ready(running)
    ways = {
        "native": Way("/vectors", json.dumps(TEXT).encode(), JSON, CLIENTS),
        "float": Way("/v1/embeddings", body("float"), JSON, CLIENTS),
        "base64": Way("/v1/embeddings", body("base64"), JSON, CLIENTS),
    }
    rps = {name: h2load(running, way, max(seconds, 2))["rps"] for name, way in ways.items()}
    figures = {f"{name}_rps": value for name, value in rps.items()}
    return figures | {f"{name}_of_native": rps[name] / rps["native"] for name in ("float", "base64")}


def inputs(running: Running, _: float) -> dict[str, float]:
    """Seconds for 2,048 inputs in one request, on a model that takes as long as it takes."""
    wait_ready(running)
    texts = [f"{TEXT} {number}" for number in range(INPUTS)]
    body = json.dumps({"model": "slow_vectors", "input": texts, "encoding_format": "base64"}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    took_s: list[float] = []
    for _round in range(7):
        began = time.perf_counter()
        connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        took_s.append(time.perf_counter() - began)
        if answer.status != 200 or len(json.loads(data)["data"]) != INPUTS:
            raise RuntimeError(data[:300])
    median = statistics.median(took_s)
    return {"inputs_s": median, "full_batches_s": FULL_BATCHES_S, "of_full_batches": median / FULL_BATCHES_S}
