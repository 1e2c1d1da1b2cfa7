"""Every test here runs a server in a separate process. Its end checks that no process is left behind."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from agents import Agents, agents_in
from harness import APPS, Serve, Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(150))
            if not sys.platform.startswith("linux"):
                item.add_marker(pytest.mark.skip(reason="looks into /proc: Linux only"))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with agents_in(tmp_path) as started:
        yield started


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers: list[Server] = []

    def start(
        *targets: str,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
        is_gate_shut: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> Server:
        """`prefix` is a program that becomes the server, with its arguments."""
        paths = [str(APPS / target) for target in targets]
        server = Server(tmp_path, paths, arguments, environment or {}, is_gate_shut, prefix=prefix)
        servers.append(server)
        return server.wait_ready() if wait else server

    yield start
    for server in servers:
        server.finish()
