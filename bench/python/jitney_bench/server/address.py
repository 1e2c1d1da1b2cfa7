"""Single requests to the measured server, outside of any measurement."""

import http
import http.client
import io
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from jitney.errors import ConfigError, JitneyError

PATIENCE_S = 10.0
"""For a whole answer."""
MOST_BYTES = 64 * 2**20
"""Of an answer: of what a server says of itself, and of the first answer, which is looked at."""
MOST_INTERIM = 100
HTTP_OK, UNAUTHORIZED, MISDIRECTED = 200, 401, 421


class ServerError(JitneyError):
    """The server that was to be measured does not answer, or not as it should."""


class Received(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    media_type: str


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


def _final(wire: _Wire) -> Received:
    """Read the answer that ends the request: others may come before it, with status 102 or 103 say."""
    source, seen = _Source(io.BufferedReader(wire)), list[http.client.HTTPResponse]()
    for _ in range(MOST_INTERIM):
        answer = http.client.HTTPResponse(cast(Any, source))
        answer.begin()
        if answer.status == http.HTTPStatus.SWITCHING_PROTOCOLS or answer.status >= HTTP_OK:
            media_type = (answer.getheader("content-type") or "").partition(";")[0].strip()
            return Received(answer.status, _body(answer), media_type)
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
            raise ConfigError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme != "http":
            raise ConfigError(f"{url!r}: only http:// is spoken here; measure the server behind the TLS proxy")
        if port == 0:
            raise ConfigError(f"{url!r}: no server listens at port 0")
        if not parts.hostname or parts.username is not None:
            raise ConfigError(f"{url!r} is not a URL of a server; write http://HOST:PORT/PATH")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.hostname, port, path, headers)

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def request(self, method: str, path: str, timeout_s: float = PATIENCE_S) -> tuple[int, bytes]:
        """Send one request without a body; its status and its answer."""
        received = self.exchange(method, path, timeout_s=timeout_s)
        return received.status, received.body

    def exchange(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", timeout_s: float = PATIENCE_S
    ) -> Received:
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
                    f"{self.url} does not take the API key of JITNEY_CLIENT_KEY, --key-file or --header: "
                    "it must be one of the server's JITNEY_API_KEYS, or of its --api-keys-file"
                )
            raise ServerError(f"{self.url} asks for an API key: set JITNEY_CLIENT_KEY, or say --key-file FILE")
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
