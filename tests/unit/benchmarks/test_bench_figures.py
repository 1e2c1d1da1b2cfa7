"""What `make bench` counts: what was not answered never counts as an answer, and never goes without notice."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
load: Any = importlib.import_module("load")
policies: Any = importlib.import_module("policies")
run: Any = importlib.import_module("run")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    writer.close()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


def outcome(handler: Handler, ask: Callable[[int], Awaitable[Any]]) -> Any:
    """What a load finds at a server like this; `ask` gets its port."""

    async def all_of_it() -> Any:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        found = await ask(server.sockets[0].getsockname()[1])
        await asyncio.sleep(0.05)  # what its closed connections still say must not be counted
        server.close()
        return found

    return asyncio.run(all_of_it())


def test_what_must_not_happen_is_judged_by_the_worst_repetition() -> None:
    runs = [{"failed": 0.0, "wrong": 0.0, "p99_ms": 1.0}, {"failed": 3.0, "wrong": 1.0, "p99_ms": 9.0}]
    runs.append({"failed": 0.0, "wrong": 0.0, "p99_ms": 2.0})
    name = "kill -9 every 2 s"
    figures = run.medians({name: {"jitney": runs}})
    assert figures[name]["jitney"] == {"failed": 3.0, "wrong": 1.0, "p99_ms": 2.0}
    verdicts = {row["target"]: row["verdict"] for row in run.show(figures, run.TARGETS)}
    assert verdicts["requests failed under kill -9"] == "FAIL"
    assert verdicts["answers that were not their own under kill -9"] == "FAIL"


def test_a_refusal_is_no_answer_and_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    said = '{"requests": 1000, "duration_s": 2.0, "p50_ms": 1, "p99_ms": 2, "refused": 400, "broken": 7}\n'

    def wrk(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(subprocess, "run", wrk)
    figures = load.wrk("http://x.test/", 64, 2, "application/json", "{}")
    assert figures["rps"] == 300
    run.show({"no-op, 64 connections": {"jitney": figures}}, run.TARGETS)
    assert "not all were answered: refused 400, broken 7" in capsys.readouterr().out


def test_requests_of_an_open_loop_that_are_never_answered_are_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PATIENCE_S", 0.1)
    asked: list[bytes] = []

    async def notes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await silent(reader, writer)

    found = outcome(notes, lambda port: load.open_loop(port, "/", 200, 0.1))
    assert found.broken == len(asked) > 5, "each once, though their connections are closed then"
    assert not found.answered_ms


def test_requests_of_a_burst_that_break_are_counted() -> None:
    story = policies.bursts(200, 3)
    found = outcome(hangs_up, lambda port: story(SimpleNamespace(port=port, path="/"), 0.1))
    assert found.broken >= 3
    assert found.broken % 3 == 0
