"""The official JavaScript client, and a framework on top of it, against /v1: with node, after `make node-packages`."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import Serve

FOLDER = Path(__file__).resolve().parents[1] / "node"
NEEDS = 20
KEY = "a-key-for-tests"
TEXT = "How many people live in London?"


def run(script: str, *arguments: str) -> Any:
    """Run a script of `tests/node`, and return what it prints; skip the test without node."""
    node = shutil.which("node")
    if node is None or not (FOLDER / "node_modules/.made").exists():
        pytest.skip("needs node, and the packages of tests/node: make node-packages")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < NEEDS:
        pytest.skip(f"the clients need node {NEEDS} or newer, here is {version}")
    command = [node, script, *arguments]
    ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_javascript_client_and_a_framework_are_served(serve: Serve) -> None:
    server = serve("embedders.py", environment={"JITNEY_API_KEYS": KEY})
    address = f"http://127.0.0.1:{server.port}/v1"
    said = run("embeddings.js", address, KEY, TEXT)
    native = pytest.approx(server.post("/words", TEXT, {"x-api-key": KEY}).json())
    assert said["models"] == ["matryoshka", "passages", "words"]
    assert said["one"]["data"][0]["embedding"] == native
    assert said["one"]["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert [found["embedding"] for found in said["floats"]["data"]] == [native, pytest.approx(said["embedded"][1])]
    assert len(said["short"]["data"][0]["embedding"]) == 3
    assert said["embedded"][0] == native
    assert [(error["name"], error["status"]) for error in said["errors"]] == [
        ("NotFoundError", 404),
        ("BadRequestError", 400),
        ("AuthenticationError", 401),
    ]
    assert said["errors"][0]["code"] == "model_not_found"
    assert "nobody" in said["errors"][0]["message"]


def test_chats_and_completions_from_javascript(serve: Serve) -> None:
    server = serve("chatting.py")
    said = run("chat.js", f"http://127.0.0.1:{server.port}/v1")
    text = "one two three"
    assert [choice["message"]["content"] for choice in said["whole"]["choices"]] == [text, text]
    *chunks, last = said["chunks"]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 6)
    helped = said["helped"]["choices"][0]
    assert (helped["message"]["content"], helped["finish_reason"]) == (text, "stop")
    assert said["completion"]["choices"][0]["text"] == " 3 4"
    unknown, refused, late = said["errors"]
    assert (unknown["status"], unknown["code"]) == (404, "model_not_found")
    assert (refused["status"], refused["param"]) == (400, "logprobs")
    assert late["code"] == "model_failed"
    assert (said["invoked"], said["streamed"]) == (text, text)
    assert said["vercel"] == {"generated": text, "flowed": text, "reason": "stop", "tokens": 6}
    for framework in ("langchain", "vercel"):
        came, message = said["late"][framework]
        assert came == "you"
        assert "the model failed on this input" in message
    forbidden, failed = "forbidden cannot be said", "the model failed on this input"
    assert [status for status, _ in said["statuses"]] == [400, 500, 400, 500]
    for (_, message), expected in zip(said["statuses"], (forbidden, failed, forbidden, failed), strict=True):
        assert expected in message


def test_javascript_clients_that_leave_end_their_answers(serve: Serve, tmp_path: Path) -> None:
    server = serve("chatting.py:Echo")
    seen = run("leaving.js", f"http://127.0.0.1:{server.port}/v1", str(tmp_path))
    assert list(seen) == ["official", "official_signal", "langchain", "langchain_signal", "vercel_signal"]
    for name, answer in seen.items():
        assert answer["first"] == "word", name
        assert 1 <= answer["written"] < 100, f"{name}: the model wrote {answer['written']} of 1000 words"
