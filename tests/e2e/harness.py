"""A server as users start it, in a separate process, and clients that speak HTTP to it.

Nothing here sleeps to be in step with the server: `until` waits for a condition, with a bound.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import pytest

APPS = Path(__file__).parent / "apps"
# Long enough for two slow, shared cores; nothing waits this long when all is well.
PATIENCE_S = 60.0
JSON = "application/json"
MSGPACK = "application/msgpack"
NPY = "application/x-npy"
LISTENING = re.compile(r"listening on (?:https?://|tcp:)127\.0\.0\.1:(\d+)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str, patience_s: float = PATIENCE_S) -> Value:
    """Wait until `condition` returns something true, and return that."""
    end = time.monotonic() + patience_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience_s:.0f} s without success: {what}")
        time.sleep(0.01)
    return value


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """The stable reason of a problem, which header and body must agree on."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json()["reason"] == self.headers["x-jitney-reason"], self
        return self.headers["x-jitney-reason"]

    @property
    def batch_size(self) -> int:
        return int(self.headers["x-jitney-batch-size"])


class Client:
    """One persistent connection. Not for several threads."""

    def __init__(self, port: int, timeout_s: float = PATIENCE_S) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        # A server that refuses at the header may hang up before the body is sent; its answer is there all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(method, path, body, dict(headers or {}))
        answer = self._connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, names, answer.read())

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def post(self, path: str, item: object, headers: Mapping[str, str] | None = None) -> Reply:
        """Send one item: bytes unchanged (name their type in `headers`), anything else as JSON."""
        if isinstance(item, bytes):
            return self.request("POST", path, item, headers)
        return self.request("POST", path, json.dumps(item).encode(), {"content-type": JSON, **(headers or {})})


@dataclass(frozen=True)
class RecordedCall:
    """One call that an app of the tests wrote down."""

    pid: int
    kind: str
    items: list[Any]


class Server:
    """`python -m jitney serve …`, its output, its processes, and what its apps recorded."""

    def __init__(
        self,
        folder: Path,
        targets: Iterable[str],
        arguments: Iterable[str],
        environment: Mapping[str, str],
        is_gate_shut: bool = False,
        *,
        prefix: Iterable[str] = (),
    ) -> None:
        self.tag = uuid.uuid4().hex
        self.calls_file = folder / f"calls-{self.tag}"
        self.gate_file = folder / f"gate-{self.tag}"
        self.agents: list[int] = []
        """Processes that start workers for it, as on other machines."""
        self._log_file = folder / f"log-{self.tag}"
        self._stdout_file = folder / f"stdout-{self.tag}"
        if is_gate_shut:
            self.shut_gate()
        command = [*prefix, sys.executable, "-m", "jitney", "serve", *targets, "--port", "0", *arguments]
        with self._log_file.open("wb") as log, self._stdout_file.open("wb") as stdout:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(APPS),
                    "JITNEY_TEST_CALLS": str(self.calls_file),
                    "JITNEY_TEST_GATE": str(self.gate_file),
                    "JITNEY_TEST_TAG": self.tag,
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                start_new_session=True,
            )
        self._port = 0
        self._pool = ThreadPoolExecutor(max_workers=300)

    # ── talking to it ───────────────────────────────────────────────────────

    @property
    def port(self) -> int:
        if self._port == 0:
            self._port = until(self._listening, "the server says where it listens")
        return self._port

    def _listening(self) -> int:
        if found := LISTENING.search(self.log()):
            return int(found.group(1))
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log()}"
        return 0

    def client(self, timeout_s: float = PATIENCE_S) -> Client:
        return Client(self.port, timeout_s)

    def get(self, path: str) -> Reply:
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, item: object, headers: Mapping[str, str] | None = None) -> Reply:
        with self.client() as client:
            return client.post(path, item, headers)

    def items_inside(self) -> int:
        """Items that wait or are with a worker."""
        return int(self.metric("jitney_queued_items") + self.metric("jitney_running_items"))

    def wait_inside(self, items: int) -> None:
        """Wait until exactly so many items are in the server; with the gate shut they stay."""
        until(lambda: self.items_inside() == items, f"{items} items are inside (now {self.items_inside()})")

    def submit_held(self, path: str, items: Iterable[object], blocker: object = "blocker") -> list[Future[Reply]]:
        """Shut the gate, let `blocker` occupy the only worker, and queue `items` behind it.

        The first of what is returned is the blocker's answer. When this returns all items are inside, so what shares
        a batch after `open_gate` does not depend on timing.
        """
        self.shut_gate()
        answers = [self.submit(path, blocker)]
        until(self.calls, "the blocker has reached predict")
        answers += [self.submit(path, item) for item in items]
        self.wait_inside(len(answers))
        return answers

    def submit(self, path: str, item: object, headers: Mapping[str, str] | None = None) -> Future[Reply]:
        """`post` from a separate thread, so that several are in flight at once."""
        return self._pool.submit(self.post, path, item, headers)

    def submit_call(self, call: Callable[[], Value]) -> Future[Value]:
        """Make any call from a separate thread."""
        return self._pool.submit(call)

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False

    def wait_ready(self) -> Self:
        def ready_or_dead() -> bool:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log()}"
            return self.is_ready()

        until(ready_or_dead, f"the server is ready; its log:\n{self.log()}")
        return self

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of a metric that carry these labels."""
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            if found := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
                present: dict[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', found.group(1) or ""))
                if labels.items() <= present.items():
                    total += float(found.group(2))
        return total

    # ── looking into it ─────────────────────────────────────────────────────

    def log(self) -> str:
        return COLOUR.sub("", self._log_file.read_text(errors="replace"))

    def stdout(self) -> str:
        return self._stdout_file.read_text(errors="replace")

    def calls(self, *kinds: str) -> list[RecordedCall]:
        """What apps wrote down of these kinds, in order; of none, the calls of `predict`."""
        if not self.calls_file.exists():
            return []
        # The last line may be incomplete.
        lines = self.calls_file.read_text().split("\n")[:-1]
        return [call for line in lines if (call := RecordedCall(**json.loads(line))).kind in (kinds or ("predict",))]

    def computed(self) -> Counter[str]:
        """How often each item was given to `predict`."""
        return Counter(item for call in self.calls() for item in call.items)

    def shut_gate(self) -> None:
        self.gate_file.touch()

    def open_gate(self) -> None:
        self.gate_file.unlink(missing_ok=True)

    def family(self) -> list[int]:
        """Every living process that descends from this server, found by its environment: orphans too."""
        members: list[int] = []
        mark = f"JITNEY_TEST_TAG={self.tag}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        members.append(int(entry.name))
                except OSError:
                    continue  # it ended meanwhile, or belongs to someone else
        return members

    def workers(self) -> list[int]:
        """The processes that host replicas, as their command lines say."""
        found: list[int] = []
        for pid in self.family():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            parent = _parent(pid)
            if b"jitney.worker" in words and parent in {self.process.pid, *self.agents}:
                found.append(pid)
        return found

    def resident_bytes(self) -> int:
        """Resident memory of the front alone."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found.group(1)) * 1024

    # ── ending it ───────────────────────────────────────────────────────────

    def wait_exit(self, patience_s: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not end within {patience_s:.0f} s; its log:\n{self.log()}") from None

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def assert_nobody_left(self) -> None:
        until(
            lambda: not self.family(),
            f"every process has ended, not only {self.process.pid}; left: {self.family()}",
            20,
        )

    def finish(self) -> None:
        """End as every test must: exit code 0 after SIGTERM (unless it has ended already), and no process left."""
        try:
            self.open_gate()
            if self.process.poll() is None:
                self.terminate()
                assert self.wait_exit() == 0, f"exit code {self.process.returncode} after SIGTERM; log:\n{self.log()}"
            self.assert_nobody_left()
        finally:
            for pid in {*self.family(), self.process.pid}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.wait()
            self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def serving(
    folders: pytest.TempPathFactory,
    *targets: str,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Generator[Server]:
    """A server for all tests of a module, each of which leaves it as it was."""
    server = Server(folders.mktemp("served"), [str(APPS / target) for target in targets], arguments, environment or {})
    try:
        yield server.wait_ready()
    finally:
        server.finish()


class Serve(Protocol):
    """Starts a server for targets of `apps/`; waits until it is ready, by default."""

    def __call__(
        self,
        *targets: str,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
        is_gate_shut: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> Server: ...


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


class Load:
    """Clients that send unique items over persistent connections until they are stopped, and keep every answer."""

    def __init__(self, server: Server, path: str, clients: int, prefix: str = "load") -> None:
        self.replies: dict[str, Reply] = {}
        self.errors: list[str] = []
        self._is_stopping = False
        self._server = server
        self._path = path
        self._pool = ThreadPoolExecutor(clients)
        self._futures = [self._pool.submit(self._run, f"{prefix}-{number}") for number in range(clients)]

    def _run(self, name: str) -> None:
        count = 0
        with self._server.client() as client:
            while not self._is_stopping:
                item = f"{name}-{count}"
                count += 1
                try:
                    self.replies[item] = client.post(self._path, item)
                except (OSError, http.client.HTTPException) as error:
                    self.errors.append(f"{item}: {error!r}")
                    if len(self.errors) > 1000:
                        return

    @property
    def answered(self) -> int:
        return len(self.replies)

    def wait_for(self, more: int) -> None:
        """Wait until `more` further answers have come."""
        goal = self.answered + more
        until(lambda: self.answered >= goal or self.errors, f"{more} more answers under load")

    def stop(self) -> None:
        self._is_stopping = True
        for future in self._futures:
            future.result(PATIENCE_S)
        self._pool.shutdown()

    def assert_all_right(self) -> None:
        """Every request got one answer, and its own."""
        assert not self.errors, self.errors[:5]
        wrong = {
            item: reply for item, reply in self.replies.items() if reply.status != 200 or reply.json() != item[::-1]
        }
        assert not wrong, f"{len(wrong)} of {len(self.replies)}: {list(wrong.items())[:3]}"
