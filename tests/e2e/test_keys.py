"""Keys: who may call, when the file of them changes, and where they are never seen."""

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
    empty.write_text("# nobody yet\n")
    server = serve("sleepy.py", arguments=("--api-keys-file", str(empty)), wait=False)
    assert server.wait_exit() == 1
    assert "holds no key" in server.log()
