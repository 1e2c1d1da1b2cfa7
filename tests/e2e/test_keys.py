"""Keys: who may call, when the file of them changes, and where they are never seen."""

import os
import subprocess
from pathlib import Path

from harness import Serve, until

KEY = "a-key-for-tests"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_keys_from_the_environment_are_asked_for_and_shown_to_nobody(serve: Serve) -> None:
    server = serve("nosy.py", "sleepy.py", arguments=("--log-level", "trace"), environment={"JITNEY_API_KEYS": KEY})
    assert server.post("/nosy", "x").status == 401
    assert server.post("/nosy", "x", bearer("another")).reason == "unauthorized"
    found = server.post("/nosy", "JITNEY_API_KEYS", {"x-api-key": KEY})
    assert (found.status, found.json()) == (200, "nothing")
    with server.client() as client:
        for page in ("/", "/config", "/metrics", "/openapi.json"):
            assert client.get(page).status == 401, page
            answer = client.request("GET", page, headers=bearer(KEY))
            assert answer.status == 200, page
            assert KEY.encode() not in answer.body, page
    assert KEY not in server.log()


def test_a_file_of_keys_is_read_again_when_it_changes(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# first\nold-key\n")
    server = serve("sleepy.py", arguments=("--api-keys-file", str(file), "--open-metrics"))
    assert server.get("/metrics").status == 200
    assert server.post("/sleepy", "ab", bearer("old-key")).json() == "ba"
    assert server.post("/sleepy", "ab", bearer("new-key")).status == 401
    replacement = tmp_path / "keys.new"
    replacement.write_text("new-key\n")
    replacement.rename(file)
    until(lambda: server.post("/sleepy", "ab", bearer("new-key")).status == 200, "the new key is taken")
    assert server.post("/sleepy", "ab", bearer("old-key")).status == 401


def test_with_keys_the_server_may_listen_for_others(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--listen", "tcp:0.0.0.0:0"), environment={"JITNEY_API_KEYS": KEY})
    assert server.post("/sleepy", "ab").status == 401
    assert server.post("/sleepy", "ab", bearer(KEY)).json() == "ba"


def test_keys_that_are_none_end_the_start(serve: Serve, tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("# no keys yet\n")
    server = serve("sleepy.py", arguments=("--api-keys-file", str(empty)), wait=False)
    assert server.wait_exit() == 1
    assert "holds no key" in server.log()


def test_a_browser_can_open_the_docs_which_ask_for_the_key(serve: Serve) -> None:
    server = serve("sleepy.py", environment={"JITNEY_API_KEYS": KEY})
    with server.client() as client:
        page = client.get("/docs")
        assert page.status == 200
        assert b"API key" in page.body and b"sleepy" not in page.body
        assert client.get("/openapi.json").status == 401


def test_the_line_to_try_has_a_place_for_the_key(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text(
        "import jitney\n\n@jitney.deployment(examples=['a'])\ndef shout(texts: list[str]) -> list[str]:\n"
        "    return [text.upper() for text in texts]\n"
    )
    server = serve(str(tmp_path / "shout.py"), environment={"JITNEY_API_KEYS": KEY})
    until(lambda: "try: curl" in server.log(), "the line is there")
    line = next(line for line in server.log().splitlines() if "try: curl" in line).partition("try: ")[2]
    ran = subprocess.run(line, shell=True, env=os.environ | {"JITNEY_CLIENT_KEY": KEY}, capture_output=True, check=True)
    assert ran.stdout == b'"A"', line


def test_the_key_of_a_caller_is_not_taken_for_one_of_the_server(serve: Serve) -> None:
    server = serve("sleepy.py", environment={"JITNEY_CLIENT_KEY": KEY})
    assert server.post("/sleepy", "ab").status == 200
    assert "set JITNEY_API_KEYS" in server.log() and KEY not in server.log()
