"""The events of the live page, read raw: what comes first and what follows, who may read them, and how they end."""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from harness import Serve, Server, serving, until

KEY = "a-key-for-tests"
MOST_WATCHERS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "watched.py") as server:
        yield server


class Watcher:
    """One stream of events."""

    def __init__(self, server: Server, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self._connection.request("GET", "/live/events", headers=headers)
        self.reply = self._connection.getresponse()

    def next(self) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the data of the next event; None at the end."""
        name = self.reply.readline().decode()
        if not name:
            return None
        data = self.reply.readline().decode()
        assert self.reply.readline() == b"\n"
        assert (name[:7], data[:6]) == ("event: ", "data: ")
        return name[7:-1], json.loads(data[6:])

    def snapshot(self) -> dict[str, Any]:
        """Return the next snapshot."""
        while event := self.next():
            if event[0] == "snapshot":
                return event[1]
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self._connection.close()


def watching(server: Server, **headers: str) -> closing[Watcher]:
    return closing(Watcher(server, **headers))


def first_event(server: Server) -> dict[str, Any]:
    with watching(server) as watcher:
        event = watcher.next()
        assert event is not None
        return event[1]


def deployment(snapshot: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in snapshot["deployments"] if one["name"] == name)


def shown(watcher: Watcher, name: str, is_meant: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
    """Wait for the first snapshot of a deployment of which this holds."""

    def found() -> dict[str, Any] | None:
        one = deployment(watcher.snapshot(), name)
        return one if is_meant(one) else None

    one = until(found, what)
    assert one is not None
    return one


def test_first_comes_the_history_and_then_a_snapshot_of_each_second(server: Server) -> None:
    # Right after the start nothing has been sampled.
    until(lambda: first_event(server)["deployments"], "a sample was taken")
    with watching(server) as watcher:
        assert watcher.reply.status == 200
        assert watcher.reply.headers["content-type"] == "text/event-stream"
        assert watcher.reply.headers["cache-control"] == "no-store"
        first = watcher.next()
        assert first is not None
        assert first[0] == "history"
        assert {"double", "words"} == set(first[1]["deployments"])
        lengths = {len(column) for column in first[1]["deployments"]["words"].values()}
        assert len(lengths) == 1, "every line has as many points"
        snapshots = [watcher.snapshot() for _ in range(3)]
        taken = [snapshot["taken"] for snapshot in snapshots]
        assert taken[0] >= first[1]["taken"] - 1
        assert taken[2] == taken[1] + 1
        assert 0 <= snapshots[2]["server"]["machine_busy"] <= 1
        assert snapshots[2]["server"]["front_lag_ms"] >= 0


def test_a_snapshot_says_what_was_asked_for(server: Server) -> None:
    for text in ("a", "bcd"):
        assert server.post("/words", text).json() == len(text)
    with watching(server) as watcher:
        words = shown(watcher, "words", lambda one: one["counts"]["answered"] >= 2, "the answers are counted")
    assert words["judgement"]["word"] in ("fine", "idle")
    assert words["sentence"].startswith("ready 2/2 · ")
    assert words["routes"] == ["/words"]
    assert [worker["state"] for worker in words["workers"]] == ["ready", "ready"]
    assert {worker["pid"] for worker in words["workers"]} < set(server.workers())
    assert sum(bar["count"] for bar in words["sizes"]) >= 1
    assert sum(part["ms"] for part in words["phases"]) > 0
    assert words["slowest"][0]["why"].split(" ms")[0].replace(".", "").isdigit()
    assert {option["name"] for option in words["options"]} >= {"max_batch_size", "replicas"}
    assert words["last_batches"][0]["closed"] == "a replica was free"


def test_a_request_that_fails_is_named_with_its_reason(server: Server) -> None:
    answer = server.post("/words", "fail", {"x-request-id": "the-failing-one"})
    assert answer.reason == "model_failed"
    with watching(server) as watcher:
        failed = shown(watcher, "words", lambda one: one["failed"], "the failure is shown")["failed"]
    assert failed[0]["request_id"] == "the-failing-one"
    assert ": model_failed: " in failed[0]["why"]
    assert "cannot be counted" not in failed[0]["why"], "the text of the exception is only shown with --show-errors"


def test_as_many_watch_as_may_and_the_next_one_takes_the_place_of_the_first(server: Server) -> None:
    def watchers() -> int:
        with watching(server) as watcher:
            watcher.snapshot()  # It may have been made before this one came.
            return watcher.snapshot()["server"]["watchers"]

    until(lambda: watchers() == 1, "those of other tests have left")
    with ExitStack() as stack:
        all_of_them = [stack.enter_context(watching(server)) for _ in range(MOST_WATCHERS + 1)]
        assert {watcher.reply.status for watcher in all_of_them} == {200}
        *_, last = iter(all_of_them[0].next, None)
        assert last == ("replaced", {"most_watchers": MOST_WATCHERS})
        assert [watcher.snapshot()["server"]["ready"] for watcher in all_of_them[1:]] == [True] * MOST_WATCHERS
    until(lambda: watchers() == 1, "they have left")


def test_a_key_that_is_taken_back_ends_its_stream(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\nanother-key-for-tests\n")
    server = serve("watched.py", arguments=("--api-keys-file", str(file)))
    with watching(server, authorization=f"Bearer {KEY}") as watcher:
        assert watcher.snapshot()["server"]["ready"]
        file.write_text("another-key-for-tests\n")
        assert len(list(iter(watcher.next, None))) < 20


def test_browsers_of_other_pages_may_not_read(server: Server) -> None:
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        with server.client() as client:
            for path in ("/live", "/live/events"):
                assert client.request("GET", path, headers=headers).reason == "foreign_host", (path, headers)
    with server.client() as client:
        assert client.request("POST", "/live/events", b"").reason == "method_not_allowed"
        to_page = client.request("GET", "/", headers={"accept": "text/html,*/*;q=0.8"})
        assert (to_page.status, to_page.headers["location"]) == (307, "/live")
        assert client.request("HEAD", "/live/events").status == 200


def test_the_page_is_open_and_its_events_need_a_key(serve: Serve) -> None:
    server = serve("watched.py", environment={"JITNEY_API_KEYS": KEY})
    page = server.get("/live")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert b"double" not in page.body, "the page has no data"
    assert server.get("/live/events").status == 401
    with server.client() as client:
        to_page = client.request("GET", "/", headers={"accept": "text/html,*/*;q=0.8"})
        assert (to_page.status, to_page.headers["location"]) == (307, "/live")
        assert client.request("POST", "/", b"", headers={"accept": "text/html"}).status == 401
    assert server.get("/").status == 401, "a program needs a key"
    with watching(server, authorization=f"Bearer {KEY}") as watcher:
        assert watcher.snapshot()["server"]["ready"]
        # A stream does not keep the server from its end.
        server.terminate()
        while watcher.next():
            pass
        assert server.wait_exit() == 0
