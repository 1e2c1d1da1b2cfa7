"""The ready-made language model behind a server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import Server
from jitney.models import READY_MADE

ROOT = Path(__file__).parents[2]
missing = READY_MADE["smollm2"].missing
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
FRANCE: dict[str, Any] = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 30}


def test_chats_share_steps_and_the_printed_lines_work(tmp_path: Path) -> None:
    server = Server(tmp_path, ["smollm2"], (), {})
    try:
        server.wait_ready()
        alone = server.post("/smollm2", FRANCE).json()
        assert "Paris" in alone
        others = [server.submit("/smollm2", FRANCE | {"max_tokens": 5 + number}) for number in range(12)]
        assert all(alone.startswith(other.result().json()) for other in others)
        refused = server.post("/smollm2", FRANCE | {"temperature": 3})
        assert (refused.status, refused.json()["field"]) == (422, "$.temperature")
        lines = subprocess.run(
            [sys.executable, str(ROOT / "scripts/chat_lines.py"), str(server.port)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        command = lines.split("\n\n")[1]
        shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60).stdout
        parts = [json.loads(line.removeprefix("data: ")) for line in shown.split("event: end")[0].split("\n\n") if line]
        assert "Paris" in "".join(parts)
        assert len(parts) > 2
    finally:
        server.finish()
