"""The pages on other servers: the code of both sides is started, and both give the same answers to the same items."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from migration_cases import FOLDER, PEERS, Case, cases, files, name_of, path_of, sections, values
from migration_servers import answers, bin_of, catalog, environments, in_ray_cluster, save, started
from pages import ROOT, blocks, commands

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    from harness import Server

PAGES = list(PEERS)
CASES = [case for page in PAGES for case in cases(page)]
SERVED = [case for case in CASES if case.ours.command.startswith("jitney serve ")]
# Blocks that are not run. A new one is added to this list, or the test fails.
NOT_RUN = [("docs/migrate/ray-serve.md", "console", "it needs a Ray cluster, which make test-migrate starts")]


@dataclass
class Ours:
    """One server for our files of all pages, and the answers that were asked of it."""

    server: Server
    folder: Path
    cache: dict[str, list[str]]

    def answers(self, case: Case, folder: Path) -> list[str]:
        """Our side's answers to the requests of a case."""
        if str(case) not in self.cache:
            if case in SERVED:
                ports = [self.server.port]
                self.cache[str(case)] = answers(case.ours, save(folder / "ours", [case.page], ports), ports)
            else:
                with started(case, case.ours, folder / "ours", Path(sys.executable).parent) as said:
                    self.cache[str(case)] = said
        return self.cache[str(case)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    folder = save(tmp_path_factory.mktemp("migrate") / "served", PAGES, [])
    targets = [name for case in SERVED for name in case.ours.command.split()[2:]]
    assert all(Path(name).suffix == ".py" for name in targets), "options are in the files, not in the commands"
    server = Server(folder, dict.fromkeys(targets), (), {})
    try:
        yield Ours(server.wait_ready(), folder, {})
    finally:
        server.finish()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_our_side_answers_as_the_page_says(case: Case, ours: Ours, tmp_path: Path) -> None:
    assert ours.answers(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_other_server_gives_the_same_answers(case: Case, ours: Ours, tmp_path: Path) -> None:
    programs = bin_of(case.page)
    with started(case, case.theirs, tmp_path / "theirs", programs) as theirs:
        pass
    same = list(map(values, ours.answers(case, tmp_path)))
    assert list(map(values, theirs)) == same


def test_our_replicas_answer_from_a_ray_cluster(ours: Ours, tmp_path: Path) -> None:
    (block,) = [block for block in blocks(path_of("ray-serve")) if block.reason]
    case = cases("ray-serve")[0]
    with in_ray_cluster(case, [command.line for command in commands(block)], tmp_path / "cluster") as answered:
        assert answered == ours.answers(case, tmp_path)


def test_every_block_is_run_or_says_why_not() -> None:
    assert {path.stem for path in (ROOT / FOLDER).glob("*.md")} - {"index"} == set(PEERS)
    found = [block for page in PAGES for block in blocks(path_of(page))]
    assert [(block.page, block.language, block.reason) for block in found if block.reason] == NOT_RUN
    for block in found:
        assert block.reason or name_of(block) or block.language == "console", f"{block}: it has no name as a file"
    for page in PAGES:
        fences = re.findall(r"^ *(?:```|~~~)", (ROOT / path_of(page)).read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(path_of(page))), f"{page}: a fence that is not seen"
        assert len(cases(page)) >= 2, f"{page}: it shows two cases"
        assert all(call.output for case in cases(page) for call in case.ours.calls), f"{page}: no output is shown"


def test_every_file_is_used() -> None:
    for page in PAGES:
        rest = "\n".join((ROOT / path_of(page)).read_text().split("```")[1::2])
        for name in files(page):
            module = name.split("/")[0].removesuffix(".py")
            assert re.search(rf"(?<!# )\b{module}\b", rest), f"{page}: {name} is neither imported nor run"


def test_one_name_means_one_file() -> None:
    named = [(name, text) for page in PAGES for name, text in files(page).items()]
    assert len({name for name, _ in named}) == len(set(named)), "two files of one name have different contents"


@pytest.mark.parametrize("page", PAGES)
def test_the_version_on_the_page_is_the_one_that_is_run(page: str) -> None:
    name = PEERS[page] or "fastapi-batched"
    asked = environments.requirements(catalog.SERVERS[name])[0].read_text()
    package = re.escape(catalog.SERVERS[name].package)
    (version,) = re.findall(rf"^{package}(?:\[\w+\])?==(\S+)$", asked, re.MULTILINE)
    assert version in (ROOT / path_of(page)).read_text()
    assert sections(page)
