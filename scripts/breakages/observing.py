"""What an operator sees: the events of the live page, the log, the alerts, and the page as a picture."""

import http.client
import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from harness import Server
from monitoring.prometheus import Prometheus

CALM_WORDS = ("fine", "idle")
FAULTS = re.compile(r"lost in the last|replicas are ready|takes (?:[3-9]|\d\d)[\d.]* times as long as the others")
"""What is said of a server that answers all requests."""
DIGITS = re.compile(r"\d[\d,.]*")
STAMP = re.compile(r"^\S+Z\s+")
POLL_S = 0.5


@dataclass
class Sight:
    """One thing that was said, and how many seconds after the fault."""

    at_s: float
    text: str
    remedy: str = ""


@dataclass
class Sights:
    """All that was said since an instant, by whom. Texts that differ only in their numbers are there once."""

    since: float
    live: list[Sight] = field(default_factory=list[Sight])
    log: list[Sight] = field(default_factory=list[Sight])
    alerts: list[Sight] = field(default_factory=list[Sight])

    def add(self, place: list[Sight], text: str, remedy: str = "") -> None:
        """Note a text, unless one that differs only in its numbers was noted."""
        kinds = {DIGITS.sub("#", sight.text) for sight in place}
        if text and DIGITS.sub("#", text) not in kinds:
            place.append(Sight(time.monotonic() - self.since, text, remedy))


def said(snapshot: dict[str, Any]) -> list[str]:
    """Return what the page says of a server that is not calm: judgements with a fault, and errors on cards."""
    texts = [f"server: {reason}" for reason in snapshot["server"]["reasons"]]
    for one in snapshot["deployments"]:
        word, why = one["judgement"]["word"], one["judgement"]["why"]
        if word not in CALM_WORDS or FAULTS.search(why):
            texts.append(f"{word}: {why}")
        texts += [f"card: {card['last_error']}" for card in one["workers"] if card["last_error"]]
    return texts


class Observer:
    """Watches a server on its own threads until it is closed."""

    def __init__(self, server: Server, prometheus: Prometheus) -> None:
        self.server, self.prometheus = server, prometheus
        self.sights = Sights(time.monotonic())
        self._lines = len(self._log())
        self._is_over = threading.Event()
        self._port = server.port
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._watch_live, self._watch_rest)]
        for thread in self._threads:
            thread.start()

    def begin(self) -> Sights:
        """Forget what was seen, and count from now on. Return what was seen before."""
        before, self.sights = self.sights, Sights(time.monotonic())
        self._lines = len(self._log())
        return before

    def follow(self, server: Server) -> None:
        """Read the log of another process from now on."""
        self.server, self._lines = server, 0

    def close(self) -> None:
        """Watch no longer."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(15)

    def _log(self) -> list[str]:
        return (self.server.log() + self.server.stdout()).splitlines()

    def _watch_rest(self) -> None:
        while not self._is_over.wait(POLL_S):
            sights = self.sights
            for line in self._log()[self._lines :]:
                sights.add(sights.log, STAMP.sub("", line).strip())
            for alert in self.prometheus.ask("alerts")["alerts"]:
                if alert["state"] == "firing":
                    labels, texts = alert["labels"], alert["annotations"]
                    text = f"{labels['alertname']} ({labels['severity']}): {texts['summary']}"
                    sights.add(sights.alerts, text, texts["description"])

    def _watch_live(self) -> None:
        while not self._is_over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            try:
                connection.request("GET", "/live/events")
                reply = connection.getresponse()
                while not self._is_over.is_set() and (line := reply.readline()):
                    if line.startswith(b"data: ") and b'"at_ms"' in line[:20]:
                        sights = self.sights
                        for text in said(json.loads(line[6:])):
                            sights.add(sights.live, text)
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            if not self._is_over.wait(POLL_S):
                self.sights.add(self.sights.live, "not connected")
