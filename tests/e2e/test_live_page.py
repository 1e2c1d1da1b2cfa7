"""The live page in a real browser: what it says, how it follows, and that it can be used with a keyboard and a key."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page, browsing
from harness import Serve, Server, serving, until

KEY = "a-key-for-tests"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # The browser comes first: where there is none, no server is started.
    assert browser
    with serving(tmp_path_factory, "watched.py") as server:
        yield server


def opened(browser: Browser, server: Server, path: str = "/live", width: int = 1200, *, dark: bool = False) -> Page:
    page = browser.page(width, dark=dark)
    page.open(f"http://127.0.0.1:{server.port}{path}")
    return page


def width_over(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_the_sentences_are_there_without_an_error_and_without_a_bar_to_scroll_sideways(
    browser: Browser, server: Server, tmp_path: Path, width: int, dark: bool
) -> None:
    page = opened(browser, server, width=width, dark=dark)
    page.wait("#deployments .sentence", "ready 2/2 · ")
    page.wait("#deployments .sentence", "ready 1/1 · ")
    assert page.text("#server").startswith("Ready. Version ")
    page.screenshot(tmp_path / "live.png")
    # What is asked for is in the window; lines of code and tables scroll on their own.
    assert width_over(page) == 0
    assert page.errors() == []


def test_a_browser_that_comes_to_the_server_is_sent_to_the_page(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/")
    page.wait("#deployments .name", "words")
    assert page.value("location.pathname") == "/live"
    page.click("nav a[href=docs]")
    page.wait("#state", "Ready. 2 deployments.")
    assert page.errors() == []


def test_a_click_or_a_key_chooses_a_deployment(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/live#double")
    page.wait("#title", "double")
    page.click("#deployments li:nth-child(2) button")
    page.wait("#title", "words")
    page.wait("#workers", "replica 1")
    assert page.text("#deployments [aria-current=true] .name") == "words"
    page.value("document.querySelector('#deployments li:nth-child(1) button').focus()")
    page.press("Enter")
    page.wait("#title", "double")
    # In time the arrows lead: what a plot says is also its label, which a screen reader reads.
    page.value("document.querySelector('figure svg').focus()")
    page.press("ArrowLeft")
    page.wait("figure .now", "5 s ago")
    assert "5 s ago: answered" in page.value("document.querySelector('figure svg').getAttribute('aria-label')")
    assert page.errors() == []


def test_what_happens_is_seen_while_the_page_is_open(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/live#words")
    page.wait("#title", "words")
    before = page.text("#outcomes")
    assert server.post("/words", "x" * 300, {"x-request-id": "a-long-text"}).json() == 300
    assert server.post("/words", "fail", {"x-request-id": "a-bad-text"}).status == 500
    page.wait("#slowest", "a-long-text")
    page.wait("#failed", "a-bad-text")
    page.wait("#deployments .word", "failing")
    page.wait("#deployments .why", "failed: model_failed")
    page.wait("#news", "words is failing")
    assert page.text("#outcomes") != before
    assert page.errors() == []


def test_a_worker_that_is_killed_shows_on_its_card(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/live#words")
    card = "#workers .card:nth-child(1)"
    page.wait(card, "ready")
    worker = int(page.text(f"{card} dd:nth-of-type(2)").split()[0])
    assert worker in server.workers()
    os.kill(worker, signal.SIGKILL)
    page.wait(card, "last error: the worker ended")
    page.wait(card, "1 lost in 5 min")
    page.wait(f"{card} .word", "ready")
    until(lambda: str(worker) not in page.text(f"{card} dl"), "another process is there")
    assert page.errors() == []


def test_the_form_answers(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/live#words")
    page.wait("#title", "words")
    page.click("#try > summary")
    page.wait("#cards .path", "POST /words")
    page.value("document.querySelector('#cards textarea').select()")
    page.write('"four"')
    page.click("#cards form button")
    page.wait("#cards .status", "200 in ")
    page.wait("#cards .answer", "4")
    assert page.errors() == []


def test_a_plot_has_its_figures_as_a_table(browser: Browser, server: Server) -> None:
    page = opened(browser, server, "/live#words")
    page.wait("#title", "words")
    page.click("figure details summary")
    page.wait("figure details table", "0 s ago")
    assert page.text("figure details th:nth-child(2)") == "answered"


def test_the_key_is_asked_for_and_used(browser: Browser, serve: Serve) -> None:
    server = serve("watched.py", environment={"JITNEY_API_KEYS": KEY}, arguments=("--trace-slow-ms", "1"))
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "a-long-text"}
    assert server.post("/words", "x" * 2000, headers).json() == 2000
    page = opened(browser, server, "/#words")
    page.wait("#server", "API key")
    assert page.value("location.pathname") == "/live"
    assert page.text("#deployments") == ""
    assert page.value("document.querySelector('nav a[href=config]').hidden"), "it would end in an error"
    page.value("document.getElementById('key').focus()")
    page.write(KEY)
    page.press("Enter")
    page.wait("#deployments .sentence", "ready 2/2 · ")
    page.wait("#server", "Ready.")
    page.wait("#server", "the machine's cores are")
    # What a link leads to is fetched with the key.
    for link, says in (("nav a[href=config]", "option_sources"), ("nav a[href=metrics]", "jitney_info")):
        page.click(link)
        page.wait("dialog pre", says)
        page.click("dialog button")
    page.click("#slowest a")
    page.wait("dialog h2", "Trace of request a-long-text")
    page.wait("dialog pre", "resourceSpans")


def test_the_id_of_a_request_without_a_trace_says_why_there_is_none(browser: Browser, server: Server) -> None:
    assert server.post("/words", "x" * 3000).json() == 3000
    page = opened(browser, server, "/live#words")
    page.wait("#slowest", ":")
    page.click("#slowest a")
    page.wait("dialog pre", "this server keeps no traces: start it with --trace-slow-ms")


def test_a_server_that_comes_back_is_watched_again(browser: Browser, serve: Serve) -> None:
    server = serve("watched.py")
    page = opened(browser, server)
    page.wait("#deployments .sentence", "ready 2/2 · ")
    port = server.port
    server.terminate()
    page.wait("#stream", "Not connected")
    assert server.wait_exit() == 0
    serve("watched.py", arguments=("--listen", f"tcp:127.0.0.1:{port}"))
    until(lambda: page.text("#stream") == "", "the page is connected again")
    page.wait("#deployments .sentence", "ready 2/2 · ")
