"""The provider: one order of the front in a line of standard input, one report in a line of standard output."""

import importlib
import json
import os
import queue
import sys
import threading
from typing import IO, Any, Final

from jitney.backends.ray.cluster import Cluster
from jitney.backends.ray.provider import Provider
from jitney.backends.ray.reach import AUTO, NO_CLUSTER, end_without, wait_until_reached

_LOOK_EVERY_S: Final = 0.2


def main() -> None:
    """Do what the front says until it ends."""
    reports = _take_stdout()

    one_line = threading.Lock()

    def say(report: dict[str, Any]) -> None:
        with one_line:
            reports.write(json.dumps(report) + "\n")
            reports.flush()

    def say_unreachable(why: str) -> None:
        say({"unreachable": {"why": why}})

    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    connected = threading.Event()
    threading.Thread(target=_read, args=(sys.stdin, orders, connected), daemon=True).start()
    first = orders.get()
    if first is None:
        return
    start = first["start"]
    wait_until_reached(start["address"], say_unreachable)
    try:
        cluster = Cluster.connect(importlib.import_module("ray"), start["address"], start["namespace"])
    except ConnectionError:
        if start["address"] == AUTO:
            say_unreachable(NO_CLUSTER)
        raise
    connected.set()
    end_without(cluster.address(), say_unreachable)
    provider = Provider(cluster, start["front"], {"secret": start["secret"], "folder": start["folder"]}, say)
    say({"connected": {"host": cluster.host()}})
    while True:
        try:
            order = orders.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            provider.look()
            continue
        if order is None:
            # Without its front, a place is good for nothing: no other front knows its secret.
            provider.end()
            return
        want = order["want"]
        provider.want(want["connect"], want["places"], want["lost"])


def _read(lines: IO[str], orders: "queue.Queue[dict[str, Any] | None]", connected: threading.Event) -> None:
    for line in lines:
        order = json.loads(line)
        if "end" in order:
            break
        orders.put(order)
    if not connected.is_set():
        os._exit(0)  # Ray waits for a cluster that may not exist, and the front waits for this process
    orders.put(None)


def _take_stdout() -> IO[str]:
    """Return standard output, and let all that Ray prints go to standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


if __name__ == "__main__":
    main()
