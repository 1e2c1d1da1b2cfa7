"""The server that is measured: one that runs already, or one that is started for it. What it says of itself."""

import contextlib
import http
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import urlsplit

from jitney.errors import ConfigError, JitneyError

PATIENCE_S = 10.0
"""For a whole answer."""
MOST_BYTES = 64 * 2**20
"""Of an answer: of what a server says of itself, and of the first answer, which is looked at."""
MOST_INTERIM = 100
START_S = 600.0
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
SHOWN_LINES = 30
HTTP_OK, UNAUTHORIZED, MISDIRECTED = 200, 401, 421


class ServerError(JitneyError):
    """The server that was to be measured does not answer, or not as it should."""


class _Wire(io.RawIOBase):
    """What comes out of a socket: so many bytes at most, and until an instant."""

    def __init__(self, connected: socket.socket, url: str, end: float) -> None:
        self._socket, self._url, self._end = connected, url, end
        self.count = 0

    def readable(self) -> bool:
        """Say that it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for some more."""
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        count = self._socket.recv_into(buffer)
        self.count += count
        if self.count > MOST_BYTES:
            raise ServerError(
                f"{self._url} sends an answer of more than {MOST_BYTES >> 20} MiB, the most that is looked at; "
                "measure a route or an input with a smaller one"
            )
        return count


@dataclass(frozen=True, slots=True)
class _Source:
    """What the standard library takes for a socket: each answer goes on where the one before ended."""

    reader: io.BufferedReader

    def makefile(self, _: str) -> io.BufferedReader:
        """Give the one reader that there is."""
        return self.reader


def _final(wire: _Wire) -> tuple[int, bytes]:
    """Read the answer that ends the request: others may come before it, with status 102 or 103 say."""
    source, seen = _Source(io.BufferedReader(wire)), list[http.client.HTTPResponse]()
    for _ in range(MOST_INTERIM):
        answer = http.client.HTTPResponse(cast(Any, source))
        answer.begin()
        if answer.status == http.HTTPStatus.SWITCHING_PROTOCOLS or answer.status >= HTTP_OK:
            return answer.status, _body(answer)
        seen.append(answer)  # when it is dropped it closes what the next one is read from
    raise http.client.HTTPException(f"{MOST_INTERIM} answers with status 1xx and none that is final")


def _body(answer: http.client.HTTPResponse) -> bytes:
    """Read in pieces: what a server says of the length of its answer may be anything."""
    parts = list[bytes]()
    while part := answer.read(2**16):
        parts.append(part)
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Address:
    """A place that answers HTTP, and what every request to it carries."""

    host: str
    port: int
    path: str = "/"
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def parse(cls, url: str, headers: Sequence[tuple[str, str]]) -> "Address":
        """Take a URL apart; ConfigError says what is wrong with it."""
        try:
            parts = urlsplit(url)
            port = 80 if parts.port is None else parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} is no URL: {error}") from None
        if parts.scheme != "http":
            raise ConfigError(f"{url!r}: only http:// is spoken here; measure the server behind the TLS proxy")
        if port == 0:
            raise ConfigError(f"{url!r}: nobody listens at port 0")
        if not parts.hostname or parts.username is not None:
            raise ConfigError(f"{url!r} is no URL of a server; write http://HOST:PORT/PATH")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.hostname, port, path, headers)

    @property
    def url(self) -> str:
        """As it is written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", timeout_s: float = PATIENCE_S
    ) -> tuple[int, bytes]:
        """Send one request, outside of any measurement."""
        headers = dict(self.headers) | ({"content-type": content_type} if content_type else {})
        end, wire = time.monotonic() + timeout_s, None
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, headers)
            wire = _Wire(connection.sock, self.url, end)
            return _final(wire)
        except TimeoutError:
            if wire is not None and wire.count:
                raise ServerError(f"{self.url} was not done with its answer after {timeout_s:g} s") from None
            raise ServerError(f"{self.url} does not answer within {timeout_s:g} s; is the server there?") from None
        except http.client.IncompleteRead:
            raise ServerError(f"{self.url} answers, but its answer to {method} {path} ended early") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.url} does not answer: {error}; is the server there?") from None
        except ValueError as error:
            raise ServerError(f"{self.url} cannot be asked, or its answer not be read: {error}") from None
        finally:
            connection.close()

    def document(self, path: str, is_ours: bool = False) -> dict[str, Any]:
        """Get a JSON object; an empty one if there is none, which is an error of a server that is `ours`."""
        status, body = self.request("GET", path)
        if status == UNAUTHORIZED:
            if any(name in ("authorization", "x-api-key") for name, _ in self.headers):
                raise ServerError(
                    f"{self.url} does not take the API key that it was sent (JITNEY_API_KEY, --key-file or --header): "
                    "it must be one of the server's JITNEY_API_KEYS, or of its --api-keys-file"
                )
            raise ServerError(f"{self.url} asks for an API key: set JITNEY_API_KEY, or say --key-file FILE")
        if status == MISDIRECTED or (is_ours and status != HTTP_OK):
            raise ServerError(f"{refused(self.url, path, status, body)}; is one of --header the reason?")
        try:
            found = json.loads(body) if status == HTTP_OK else None
        except (ValueError, RecursionError):
            found = None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def refused(url: str, path: str, status: int, body: bytes) -> str:
    """Say how a server answered instead of as it should."""
    text = " ".join(body.decode(errors="replace").split())[:500]
    return f"{url}{path} is answered with {status}: {text}"


@dataclass(frozen=True, slots=True)
class Site:
    """A jitney server, seen from outside."""

    address: Address
    api: Mapping[str, Any]

    @classmethod
    def look(cls, address: Address, is_ours: bool = False) -> "Site | None":
        """Find out whether this is a jitney server."""
        api = address.document("/openapi.json", is_ours)
        info = api.get("info")
        is_jitney = isinstance(info, dict) and cast("dict[str, Any]", info).get("title") == "jitney"
        return cls(address, api) if is_jitney else None

    @property
    def version(self) -> str:
        """Of the server."""
        return f"jitney {self.api['info']['version']}"

    def models(self) -> list[str]:
        """Names of the deployments."""
        many = {path[1:].removesuffix("/batch") for path in self.api["paths"] if path.endswith("/batch")}
        return [path[1:] for path in self.api["paths"] if path[1:] in many]

    def examples(self, model: str) -> list[object]:
        """Return the examples of a deployment as JSON has them."""
        content = self.api["paths"][f"/{model}"]["post"]["requestBody"]["content"]
        examples = content.get("application/json", {}).get("examples", {})
        return [example["value"] for example in examples.values()]

    def config(self, model: str) -> Mapping[str, Any]:
        """Return the options in force of a deployment."""
        config = self.address.document("/config")
        return config.get("deployments", {}).get(model, {}).get("options", {})

    def tensors(self, model: str, which: Literal["inputs", "outputs"]) -> list[Mapping[str, Any]]:
        """Return the tensors of a model as the Open Inference Protocol describes them."""
        return self.address.document(f"/v2/models/{model}").get(which, [])

    def octets(self, model: str, tensors: Sequence[str]) -> frozenset[str]:
        """Return those of the tensors of a model that are in base64 in its JSON: bytes and images."""
        content = self.api["paths"][f"/{model}"]["post"]["requestBody"]["content"]
        schema = content.get("application/json", {}).get("schema", {})
        parts = schema.get("properties", dict.fromkeys(tensors, schema))
        return frozenset(name for name in tensors if _is_base64(parts.get(name, {})))

    def metrics(self, model: str) -> dict[str, float]:
        """Return the metrics of a deployment, by name and further labels; empty if they cannot be had."""
        status, body = self.address.request("GET", "/metrics")
        return read_metrics(body.decode(), model) if status == HTTP_OK else {}


def _is_base64(schema: Mapping[str, Any]) -> bool:
    return any(kind.get("contentEncoding") == "base64" for kind in (schema, *schema.get("anyOf", ())))


def read_metrics(text: str, model: str) -> dict[str, float]:
    """Read the lines of one deployment: `name` or `name{reason="full"}` to its value."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if match is None:
            continue
        labels = re.findall(r'(\w+)="([^"]*)"', match[2])
        if ("deployment", model) in labels:
            rest = ",".join(f'{name}="{value}"' for name, value in labels if name != "deployment")
            found[f"{match[1]}{{{rest}}}" if rest else match[1]] = float(match[3])
    return found


class Child:
    """`jitney serve TARGET` for the time of a measurement. Use as a context."""

    def __init__(self, target: str, arguments: Sequence[str]) -> None:
        self._target = target
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        # Keys are for those who call; a server that only its parent can know of needs none.
        environment = {
            name: value for name, value in os.environ.items() if name not in ("JITNEY_API_KEY", "JITNEY_API_KEYS")
        }
        self._process = subprocess.Popen(
            # At this level the log says where it listens, whatever environment and file want of it.
            [sys.executable, "-P", "-m", "jitney", "serve", target, "--port", "0", "--log-level", "info", *arguments],
            # It ends with this process, however that ends.
            env=environment | {"JITNEY_RELOAD_PARENT": str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            process_group=0,  # Ctrl-C is for the parent, which then ends the child
        )

    def __enter__(self) -> Self:
        """Nothing more: `wait_ready` says where it listens."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """Of the front."""
        return self._process.pid

    def wait_ready(self, headers: Sequence[tuple[str, str]]) -> Address:
        """Wait until every deployment is ready; ServerError if that does not come."""
        end = time.monotonic() + START_S
        address: Address | None = None
        status, body = 0, b""
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise ServerError(f"{self._target} cannot be served:\n{self._tail()}")
            if address is None and (found := LISTENING.search(self._text())):
                address = Address("127.0.0.1", int(found[1]))  # with no header that would make it refuse
            # While it ends because a model cannot be loaded, nobody answers.
            with contextlib.suppress(ServerError):
                if address is not None:
                    status, body = address.request("GET", "/readyz")
            if address is not None and status == HTTP_OK:
                return replace(address, headers=headers)
            if address is not None and 400 <= status < 500:
                raise ServerError(refused(address.url, "/readyz", status, body))
            time.sleep(0.05)
        raise ServerError(f"{self._target} was not ready after {START_S:.0f} s:\n{self._tail()}")

    def _text(self) -> str:
        # `pread` leaves the place alone at which the child writes.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def _tail(self) -> str:
        return "\n".join(self._text().splitlines()[-SHOWN_LINES:])


@dataclass(frozen=True, slots=True)
class Used:
    """What processes have used so far."""

    front_cpu_s: float
    cpu_s: float
    resident_mb: float


def used_by(pid: int) -> Used | None:
    """Look at a process and all that it started; None where there is no /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    family = [pid]
    for member in family:
        family += [child for child, fields in stats.items() if int(fields[1]) == member]
    cpu = [(int(stats[member][11]) + int(stats[member][12])) / ticks for member in family if member in stats]
    resident = sum(int(stats[member][21]) * page for member in family if member in stats)
    return Used(cpu[0], sum(cpu), resident / 2**20) if cpu else None
