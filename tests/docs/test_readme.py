"""What README and the pages of the site say is so: every block is run or says why not, every link leads somewhere."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jitney.cli.main import main
from jitney.cli.reload import Reloader
from jitney.front.settings import Settings
from pages import ROOT, Block, Command, blocks, broken_links, commands, pages_below, run_line
from PIL import Image

if TYPE_CHECKING:
    from tests.e2e.harness import Server
else:
    from harness import Server

# Pages whose blocks are run by another test, or are not to be run.
ELSEWHERE = {
    "docs/design/": "pictures and formats for maintainers",
    "docs/how-to/frameworks/": "tests/docs/test_recipes.py",
    "docs/migrate/": "tests/migrate",
    "docs/operations/deployment.md": "tests/deploy/test_page.py",
    "docs/operations/monitoring.md": "tests/monitoring/test_rules.py",
}
PAGES = ["README.md", *pages_below("docs", ELSEWHERE)]
BLOCKS = [block for page in PAGES for block in blocks(page)]
# Blocks that cannot be run here. A new one is added to this list, or the test fails.
NOT_RUN = [
    ("docs/how-to/answers/chains.md", "console", "needs the packages of both models"),
    ("docs/how-to/answers/stages.md", "python", "it is a part of predict"),
    ("docs/how-to/batches/gpu.md", "python", "needs two GPUs and a model"),
    ("docs/how-to/models/tests.md", "python", "pytest collects it"),
    ("docs/how-to/programs/fastapi.md", "console", "it changes the environment"),
    ("docs/how-to/programs/processes.md", "python", "needs the server above"),
    ("docs/how-to/programs/ray.md", "python", "needs a Ray cluster"),
    ("docs/how-to/serve/live-page.md", "text", "it shows a line of the page"),
    ("docs/how-to/serve/machines.md", "ini", "needs systemd"),
    ("docs/how-to/serve/machines.md", "console", "needs Slurm"),
    ("docs/how-to/serve/ray.md", "console", "needs a Ray cluster"),
    ("docs/how-to/serve/traces.md", "text", "it shows a line of the log"),
    ("docs/how-to/serve/traces.md", "python", "it needs opentelemetry-sdk"),
    ("docs/how-to/serve/watch.md", "text", "it shows a line of the log"),
    ("docs/start/embedding.md", "console", "it changes the environment"),
    ("docs/start/images.md", "console", "it changes the environment"),
    ("docs/tutorials/chat.md", "console", "needs the packages of smollm2"),
    ("docs/tutorials/chat.md", "python", "needs the packages of smollm2"),
    ("docs/tutorials/diffusion.md", "python", "it is an excerpt of examples/text_to_image/whole.py"),
    ("docs/tutorials/diffusion.md", "python", "it is an excerpt of examples/text_to_image/steps.py"),
    ("docs/tutorials/diffusion.md", "python", "it is an excerpt of examples/text_to_image/steps.py"),
    ("docs/tutorials/fastapi.md", "console", "it changes the environment"),
    ("docs/tutorials/rag.md", "python", "it is an excerpt of examples/rag/rag.py"),
    ("docs/tutorials/rag.md", "console", "needs the packages of both models"),
]
EXCERPT = "it is an excerpt of "
PICTURES = {"text"}
RUN = [block for block in BLOCKS if block.reason is None]
FILES = [block for block in RUN if block.language in ("python", "toml") and block.file]
PROGRAMS = [block for block in RUN if block.language == "python" and not block.file]
COMMANDS = [command for block in RUN if block.language == "console" for command in commands(block)]
PORT = re.compile(r"\b8000\b")


def of(language: str) -> list[Block]:
    return [block for block in RUN if block.language == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader would have it who saved every file."""
    where = tmp_path_factory.mktemp("reader")
    # A jitney.toml must name deployments that are served. In the same folder it would break commands that serve
    # one file.
    (where / "all").mkdir()
    for block in FILES:
        assert block.file
        (where / ("all" if block.language == "toml" else ".") / block.file).write_text(block.text)
    Image.new("RGB", (40, 30), (0, 128, 128)).save(where / "photo.png")
    (where / "examples").symlink_to(ROOT / "examples")
    return where


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """One server for all files at once, with the `jitney.toml` of the pages, a ready-made model and an example."""
    files = dict.fromkeys(str(block.file) for block in FILES if block.language == "python")
    targets = ["minilm", "examples/text_to_image/steps.py", *files]
    started = Server(folder, targets, ("--config", "all/jitney.toml"), {})
    try:
        yield started.wait_ready()
    finally:
        started.finish()


def shell(line: str, folder: Path, port: int) -> str:
    """Run a command of a page; it must succeed."""
    ran = run_line(PORT.sub(str(port), line), folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_block_is_run_or_says_why_not() -> None:
    for page in PAGES:
        fences = re.findall(r"^ *(?:```|~~~)", (ROOT / page).read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), f"{page}: a fence is of a form that this test does not see"
    assert [(block.page, block.language, block.reason) for block in BLOCKS if block.reason] == NOT_RUN
    known = {"python", "console", "toml", "json", "js", *PICTURES}
    assert [f"{block}: {block.language}" for block in RUN if block.language not in known] == []


def test_pages_that_are_run_elsewhere_are_there() -> None:
    assert len(PAGES) > 40
    assert [name for name in ELSEWHERE if not (ROOT / name).exists()] == []


def test_no_two_different_files_have_one_name() -> None:
    texts = {str(block.file): block.text for block in FILES}
    assert [str(block) for block in FILES if texts[str(block.file)] != block.text] == []


@pytest.mark.parametrize("block", {b.file: b for b in FILES if b.language == "python"}.values(), ids=str)
def test_a_file_passes_check(block: Block, folder: Path) -> None:
    said = shell(f"jitney check {block.file}", folder, 0)
    assert "warning" not in said.replace("warning: no examples", "")


def code(text: str) -> str:
    """Return a file without what is before its first import."""
    return text[text.index("\nimport ") :]


@pytest.mark.parametrize("name", ["embedder.py", "topics.py"])
def test_a_model_of_the_pages_is_the_example(name: str) -> None:
    shown = [block for block in BLOCKS if block.file == name]
    assert {code(block.text) for block in shown} == {code((ROOT / "examples" / name).read_text())}


def test_an_excerpt_is_in_its_file() -> None:
    excerpts = [block for block in BLOCKS if (block.reason or "").startswith(EXCERPT)]
    missing = [
        f"{block}: {line}"
        for block in excerpts
        for line in block.text.splitlines()
        if line.strip() not in (ROOT / str(block.reason).removeprefix(EXCERPT)).read_text()
    ]
    assert excerpts and missing == []


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_does_what_the_page_says(
    command: Command,
    folder: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    words = shlex.split(command.line)
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    program, *arguments = words[len(variables) :]
    if program == "make":
        assert re.search(rf"^{arguments[0]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "source":
        assert arguments == [f"{makefile_variable('VENV')}/bin/activate"]
    elif (program, arguments[0]) == ("jitney", "serve"):
        monkeypatch.chdir(folder)
        for variable in variables:
            monkeypatch.setenv(*variable.split("=", 1))
        check_serve(arguments, request.getfixturevalue("server"), monkeypatch)
    elif (program, arguments[0]) == ("jitney", "secret"):
        monkeypatch.chdir(tmp_path)
        assert main(arguments) == 0
    elif (program, arguments[0]) == ("jitney", "worker"):
        agents: list[str] = []

        def work(settings: str) -> int:
            agents.append(settings)
            return 0

        monkeypatch.setattr("jitney._core.work", work)
        assert main(arguments) == 0
        assert json.loads(agents[0])["connect"]
    elif program == "curl" or (program, arguments[0]) in {("jitney", "bench"), ("jitney", "check"), ("python", "-c")}:
        if program == "curl":
            skip_without_curl(command)
        port = request.getfixturevalue("server").port if program == "curl" or "8000" in command.line else 0
        output = shell(command.line, folder, port)
        assert command.prints(output), f"it prints\n{output}\nand not\n{command.output}"
    else:
        pytest.fail(f"no way is known to try out {command.line!r}")


def skip_without_curl(command: Command) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    said = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"curl (\d+)\.(\d+)", said)
    if "%header{" in command.line and found and (int(found[1]), int(found[2])) < (7, 84):
        pytest.skip(f"%header needs curl 7.84, here is {found[0]}")


def makefile_variable(name: str) -> str:
    found = re.search(rf"^{name} := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return found.group(1)


def check_serve(arguments: list[str], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `jitney serve` but the serving; what it names is served already."""
    taken: list[Settings] = []
    served = server.get("/config").json()["deployments"]

    def take(settings: Settings, renews: bool = False, reread: object = None) -> int:
        assert not renews
        taken.append(settings)
        return 0

    def is_started(_: Reloader) -> int:
        return 0

    monkeypatch.setattr("jitney.cli.serve.serve", take)
    monkeypatch.setattr("jitney.cli.inline.serve", take)
    monkeypatch.setattr(Reloader, "run", is_started)
    assert main(arguments) == 0
    assert taken or "--reload" in arguments
    for settings in taken:
        assert settings.overrides.unknown_names(served) == []
        assert all(target.startswith("jitney.models.") or Path(target).is_file() for target in settings.targets)


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: Block, folder: Path, server: Server) -> None:
    program = PORT.sub(str(server.port), block.text)
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("block", of("js"), ids=str)
def test_a_script_runs(block: Block, server: Server) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = PORT.sub(str(server.port), block.text)
    ran = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("block", [*of("json"), *of("toml")], ids=str)
def test_a_document_parses(block: Block) -> None:
    assert json.loads(block.text) if block.language == "json" else tomllib.loads(block.text)


def test_the_options_of_the_file_are_in_force(server: Server) -> None:
    config = server.get("/config").json()
    assert config["server"]["max_body_bytes"] == 8_388_608
    assert config["deployments"]["prices"]["options"]["max_batch_size"] == 16
    assert config["deployments"]["prices"]["option_sources"]["max_batch_size"] == "file"


def test_every_link_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [problem for page in pages for problem in broken_links(page)] == []


def test_the_reference_explains_why_batches_are_closed_and_what_config_says_of_them() -> None:
    core = ROOT / "crates/core/src"
    reasons = re.findall(r'CloseReason::\w+ => "(\w+)"', (core / "policy" / "batch_policy.rs").read_text())
    explained = (core / "scheduler" / "explanation.rs").read_text()
    (explanation,) = re.findall(r"pub struct Explanation \{(.*?)\n\}", explained, re.DOTALL)
    fields = re.findall(r"pub (\w+):", explanation)
    assert len(reasons) == 11 and "returns" in fields
    assert not_in_tables("docs/reference/config.md", [*reasons, *fields]) == []


def test_the_reference_explains_every_field_of_config(server: Server) -> None:
    config = server.get("/config").json()
    names = {*config, *(name for each in config["deployments"].values() for name in each)}
    assert len(names) > 10
    assert not_in_tables("docs/reference/config.md", sorted(names)) == []


def test_the_reference_explains_every_header_of_the_api(server: Server) -> None:
    document = server.get("/openapi.json").json()
    parts = document["components"]
    asked = [each["name"] for each in parts["parameters"].values()]
    answered = {
        name
        for path in document["paths"].values()
        for answer in path.get("post", {"responses": {}})["responses"].values()
        for name in answer.get("headers", {})
    }
    keys = [each["name"] for each in parts.get("securitySchemes", {}).values() if each.get("in") == "header"]
    assert len(asked) >= 3 and len(answered) >= 6
    assert not_in_tables("docs/reference/headers.md", [*asked, *sorted(answered), *keys]) == []


def not_in_tables(page: str, names: list[str]) -> list[str]:
    """Say which names stand in no first column of a table of a page."""
    rows = (ROOT / page).read_text().splitlines()
    first = "\n".join(line.split("|")[1] for line in rows if line.startswith("|"))
    return [name for name in names if not re.search(rf"`{re.escape(name)}\b", first)]


def test_the_reference_pages_are_what_the_tables_say() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "scripts/reference.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
