"""A real browser without a window, driven by the DevTools protocol over a pipe: nothing but Chromium is needed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from harness import PATIENCE_S, until

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The protocol is spoken over the files 3 and 4 of the browser.
AS_3_AND_4 = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
)


def needs_chromium() -> str:
    """Return the path of Chromium. Without it the test is skipped, and fails with JITNEY_REQUIRE_TOOLS."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("JITNEY_REQUIRE_TOOLS"):
            pytest.fail("chromium is not installed, and JITNEY_REQUIRE_TOOLS is set: run `make monitoring-tools`")
        pytest.skip("chromium is not installed: make monitoring-tools")
    return found


class Browser:
    """One process. Its pages are in separate contexts."""

    def __init__(self, path: str, folder: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        arguments = [path, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", AS_3_AND_4, str(commands), str(answers), *arguments],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._count = 0
        self._replies: dict[int, Queue[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._answers, 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._replies[message["id"]].put(message)
                else:
                    self.events.append(message)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._count += 1
        number = self._count
        replies = self._replies[number] = Queue[dict[str, Any]]()
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        try:
            reply = replies.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"the browser does not answer {method}") from None
        assert "error" not in reply, (method, reply["error"])
        return reply["result"]

    def page(self, width: int = 1200, *, dark: bool = False) -> "Page":
        """Open an empty page of this width."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        return page

    def close(self) -> None:
        """End the process."""
        self.call("Browser.close")
        os.close(self._commands)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        os.close(self._answers)


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to this address."""
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """Return what an expression of JavaScript gives; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of all elements that match; empty if there is none."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent).join('\\n')"
        return self.value(found)

    def wait(self, selector: str, says: str) -> str:
        """Wait until the text of these elements contains something, and return the text."""
        return until(
            lambda: text if says in (text := self.text(selector)) else "",
            f"{selector} says {says!r}; it says {self.text(selector)!r}",
        )

    def click(self, selector: str) -> None:
        """Click on the middle of an element, as a mouse does."""
        place = (
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); "
            "one.scrollIntoView({ block: 'center' }); const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = self.value(place)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"windowsVirtualKeyCode": 13, "text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def write(self, text: str) -> None:
        """Write a text where the focus is."""
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def errors(self) -> list[str]:
        """What the console of the page complains about."""
        found: list[str] = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            about = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(about["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and about["entry"]["level"] == "error":
                found.append(json.dumps(about["entry"]))
            elif event["method"] == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
                found.append(json.dumps(about["args"]))
        return found


@contextmanager
def browsing() -> Generator[Browser]:
    """Start a browser for a while."""
    path = needs_chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(path, Path(folder))
        try:
            yield browser
        finally:
            browser.close()
