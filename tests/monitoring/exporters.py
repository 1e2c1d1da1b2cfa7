"""Programs that Prometheus scrapes next to jitney, and that cannot run here: texts of their form are served."""

import re
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXTS = Path(__file__).parent / "exposed"
GROWTH_PER_S = 0.25
SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)")


def grown(text: str, elapsed_s: float) -> str:
    """Return the text as it would be after this time."""
    counters = set(re.findall(r"# TYPE (\w+) counter", text))
    lines: list[str] = []
    for line in text.splitlines():
        found = SAMPLE.fullmatch(line)
        if found and found[1] in counters:
            lines.append(f"{found[1]}{found[2] or ''} {float(found[3]) + GROWTH_PER_S * elapsed_s}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@contextmanager
def serving_text(text: str) -> Generator[int]:
    """Serve a text as a page of metrics, and return the port."""
    started = time.monotonic()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = grown(text, time.monotonic() - started).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # Prometheus has ended
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def exporters() -> Generator[dict[str, int]]:
    """Serve all of them, and return the port of each by its job."""
    with ExitStack() as stack:
        yield {path.stem: stack.enter_context(serving_text(path.read_text())) for path in sorted(TEXTS.glob("*.txt"))}
