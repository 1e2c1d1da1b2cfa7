"""Frameworks on top of the OpenAI API: LangChain here, LiteLLM and LlamaIndex in a separate environment.

Each is tested with whole answers, streams, a client that leaves, and errors before the first part and after it.
"""

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jitney
import openai
import pytest
from harness import Serve, Server, serving, until
from langchain_openai import ChatOpenAI
from openai_clients import base_url
from pydantic import SecretStr

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".venv-clients"
TARGETS = ("chatting.py:Echo", "chatting.py:go_on", "embedders.py:Words", "painting.py:paint")
TEXT = "one two three"
LONG = "word " * 1000
FAILED = "the model failed on this input"


def run(script: str, server: Server, folder: Path) -> Any:
    """Run a script of `tests/clients`, and return what it prints; skip the test without its environment."""
    if not (CLIENTS / ".made").exists():
        pytest.skip("needs .venv-clients: make client-packages")
    command = [CLIENTS / "bin/python", ROOT / "tests/clients" / script, base_url(server), folder]
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=140, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def assert_ended(written: int) -> None:
    """The model writes one word, waits for the gate, and may write a few more until it learns of the end."""
    assert 1 <= written < 100, f"the model wrote {written} of 1000 words"


def native(server: Server, text: str) -> Any:
    return pytest.approx(server.post("/words", text).json())


def test_litellm(serve: Serve, tmp_path: Path) -> None:
    server = serve(*TARGETS)
    said = run("litellm_answers.py", server, tmp_path)
    assert said["whole"] == {"texts": [TEXT, TEXT], "tokens": 9, "model": "echo"}
    assert said["stream"] == {"text": TEXT, "parts": 5, "reasons": ["stop"], "tokens": 6}
    assert said["astream"] == TEXT
    first, written = said["left"]
    assert first == "word"
    assert_ended(written)
    ended, written = said["cancelled"]
    assert ended == "CancelledError"
    assert_ended(written)
    unknown, forbidden, refused, *failed = said["errors"]
    assert unknown[:2] == ["NotFoundError", 404] and "there is no model `nobody`" in unknown[2]
    assert forbidden[:2] == ["BadRequestError", 400] and "forbidden cannot be said" in forbidden[2]
    assert refused[:2] == ["BadRequestError", 400] and "logprobs: the model `echo` does not take it" in refused[2]
    for name, status, message in failed:
        assert (name, status) == ("InternalServerError", 500) and FAILED in message
    for text, name, message in (said["late"], said["alate"]):
        assert text == "you"
        assert name in {"APIConnectionError", "MidStreamFallbackError"} and FAILED in message
    assert said["completion"] == [" 3 4 5", 6, " 3 4 5"]
    assert said["embedding"] == [[native(server, "a bus"), native(server, "another")], 3]
    painted = jitney.Image(base64.b64decode(said["image"]))
    assert (painted.width, painted.height) == (16, 24)


def test_llama_index(serve: Serve, tmp_path: Path) -> None:
    server = serve(*TARGETS)
    said = run("llama_index_answers.py", server, tmp_path)
    assert said["whole"] == [TEXT, 6, TEXT]
    assert said["stream"] == [["one", " two", " three"], TEXT, 6]
    assert said["astream"] == ["one", " two", " three"]
    first, written = said["left"]
    assert first == "word"
    assert_ended(written)
    ended, written = said["cancelled"]
    assert ended == "CancelledError"
    assert_ended(written)
    unknown, forbidden, refused, failed = said["errors"]
    assert unknown[:2] == ["NotFoundError", 404] and "there is no model `nobody`" in unknown[2]
    assert forbidden[:2] == ["BadRequestError", 400] and "forbidden cannot be said" in forbidden[2]
    assert refused[:2] == ["BadRequestError", 400] and "logprobs: the model `echo` does not take it" in refused[2]
    assert failed[:2] == ["InternalServerError", 500] and FAILED in failed[2]
    assert said["late"] == said["alate"] == ["you", "APIError", "model_failed"]
    assert said["completion"] == [" 3 4 5", 6, " 3 4 5"]
    assert said["embedding"] == [native(server, text) for text in ("a bus", "a bus", "another", "third")]


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, TARGETS[0]) as server:
        yield server


def langchain(server: Server, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model="echo", base_url=base_url(server), api_key=SecretStr("none"), max_retries=0, **fields)


def test_langchain(echo: Server) -> None:
    framework = langchain(echo)
    assert framework.invoke(TEXT).content == TEXT
    chunks = list(framework.stream(TEXT, stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == TEXT
    assert sum(chunk.usage_metadata["total_tokens"] for chunk in chunks if chunk.usage_metadata) == 6


def test_errors_of_langchain(echo: Server) -> None:
    framework = langchain(echo)
    with pytest.raises(openai.BadRequestError, match="forbidden cannot be said"):
        framework.invoke("forbidden")
    with pytest.raises(openai.InternalServerError) as early:
        list(framework.stream("hurt me"))
    assert (early.value.status_code, early.value.code) == (500, "model_failed")
    texts = list[str]()
    with pytest.raises(openai.APIError, match=FAILED) as late:
        texts.extend(str(chunk.content) for chunk in framework.stream("you hurt me"))
    assert "".join(texts) == "you"
    assert late.value.code == "model_failed"


def wait_for_end(server: Server, gate: Path, cancelled: float) -> None:
    until(
        lambda: server.metric("jitney_requests_total", deployment="echo", outcome="cancelled") == cancelled,
        f"{cancelled:.0f} requests are cancelled",
    )
    until(lambda: server.metric("jitney_running_items", deployment="echo") == 0, "no item runs")
    gate.touch()
    released = Path(f"{gate}.released")
    assert_ended(int(until(lambda: released.exists() and released.read_text(), "the model has released the answer")))


def test_langchain_leaves(echo: Server, tmp_path: Path) -> None:
    cancelled = echo.metric("jitney_requests_total", deployment="echo", outcome="cancelled")
    gate = tmp_path / "left"
    for chunk in langchain(echo, max_tokens=1000, extra_body={"gate": str(gate)}).stream(LONG):
        if chunk.content:
            assert chunk.content == "word"
            break
    wait_for_end(echo, gate, cancelled + 1)


def test_asynchronous_langchain(echo: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def read(framework: ChatOpenAI, text: str, parts: list[str], begun: asyncio.Event) -> None:
        async for chunk in framework.astream(text):
            if chunk.content:
                parts.append(str(chunk.content))
                begun.set()

    async def cancel() -> None:
        begun = asyncio.Event()
        gated = langchain(echo, max_tokens=1000, extra_body={"gate": str(gate)})
        task = asyncio.create_task(read(gated, LONG, [], begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for_end, echo, gate, cancelled + 1)

    async def in_one_loop() -> None:  # all instances share the connections of one loop
        parts = list[str]()
        await read(langchain(echo), TEXT, parts, asyncio.Event())
        assert parts == ["one", " two", " three"]
        with pytest.raises(openai.APIError, match=FAILED):
            await read(langchain(echo), "you hurt me", parts, asyncio.Event())
        assert parts[3:] == ["you"]
        await cancel()

    cancelled = echo.metric("jitney_requests_total", deployment="echo", outcome="cancelled")
    asyncio.run(in_one_loop())
