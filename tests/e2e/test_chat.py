"""The ready-made language model behind a server."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from harness import Server
from jitney.models import READY_MADE

ROOT = Path(__file__).parents[2]
missing = READY_MADE["smollm2"].missing
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
FRANCE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 30,
    "temperature": 0,
}


def test_chats_share_steps_and_what_make_chat_prints_works(tmp_path: Path) -> None:
    server = Server(tmp_path, ["smollm2"], (), {})
    try:
        server.wait_ready()
        alone = server.post("/smollm2", FRANCE).json()
        assert "Paris" in alone
        others = [server.submit("/smollm2", FRANCE | {"max_tokens": 5 + number}) for number in range(12)]
        assert all(alone.startswith(other.result().json()) for other in others)
        refused = server.post("/smollm2", FRANCE | {"temperature": 3})
        assert (refused.status, refused.json()["field"]) == (422, "$.temperature")
        answer = server.post("/v1/chat/completions", FRANCE | {"model": "smollm2", "stop": "Paris"}).json()
        assert answer["choices"][0]["message"]["content"] == alone.partition("Paris")[0]
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["prompt_tokens"] > 20

        shown = run([sys.executable, str(ROOT / "scripts/chat_lines.py"), str(server.port)])
        _, command, _, *snippet = shown.split("\n\n")
        lines = run(["bash", "-c", command]).strip().split("\n\n")
        assert lines[-1] == "data: [DONE]"
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        assert "Paris" in "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert "Paris" in run([sys.executable, "-c", textwrap.dedent("\n\n".join(snippet))])
    finally:
        server.finish()


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
