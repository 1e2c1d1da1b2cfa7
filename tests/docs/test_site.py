"""The site is built strictly: links, anchors and navigation are right, and no page loads anything from elsewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jitney
import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import site_hooks
from site_pictures import states

PYTHON = ROOT / ".venv-site/bin/python"
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link(?=[^>]*rel="?(?:stylesheet|preconnect|preload|icon)))\b[^>]*?"""
    r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)|url\(["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)"""
)


def loaded_from_elsewhere(text: str) -> list[str]:
    """List what a page or a style sheet loads from other hosts when it is shown. Links for readers do not count."""
    return ["".join(found) for found in LOADED.findall(text)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does, with every warning as an error."""
    if not (PYTHON.parent.parent / ".made").exists():
        if os.environ.get("JITNEY_REQUIRE_TOOLS"):
            pytest.fail("mkdocs is not installed, and JITNEY_REQUIRE_TOOLS is set: run `make site-packages`")
        pytest.skip("mkdocs is not installed: run `make site-packages`")
    where = tmp_path_factory.mktemp("site")
    command = [str(PYTHON), "-m", "mkdocs", "build", "--quiet", "--site-dir", str(where)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=140, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return where


def pages(site: Path) -> Iterator[Path]:
    return (path for path in site.rglob("*") if path.suffix in {".html", ".css"})


def test_every_page_is_built_and_none_loads_anything_from_another_host(site: Path) -> None:
    assert [
        f"{page.relative_to(site)}: {each}" for page in pages(site) for each in loaded_from_elsewhere(page.read_text())
    ] == []
    built = {page.parent.relative_to(site).as_posix() for page in site.rglob("index.html")}
    sources = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {re.sub(r"(^|/)(index|README)$", "", name) or "." for name in sources} == built


def test_what_a_page_loads_from_elsewhere_is_found() -> None:
    text = """<script src="https://a.example/x.js"></script> <link href="//b.example/f.css" rel="stylesheet">
    <img alt="" src='http://c.example/i.png'> <a href="https://d.example">a link</a>
    @font-face { src: url(https://e.example/f) } <link rel="canonical" href="https://f.example/">"""
    hosts = [each.split("//")[1].split("/")[0] for each in loaded_from_elsewhere(text)]
    assert hosts == ["a.example", "b.example", "c.example", "e.example"]


def test_every_public_name_is_on_a_page_of_the_python_reference(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference/python").rglob("*.html"))
    described = set(re.findall(r'id="jitney\.(\w+)"', text))
    assert set(jitney.__all__) - {"__version__"} <= described
    modules = {"jitney.testing": "inline", "jitney.fastapi": "install", "jitney.text": "Stops"}
    assert [name for name, part in modules.items() if f'id="{name}.{part}"' not in text] == []


def test_links_out_of_the_pages_lead_to_the_repository() -> None:
    config = SimpleNamespace(docs_dir=str(ROOT / "docs"), extra={"repository": "https://code.example"})
    page = SimpleNamespace(file=SimpleNamespace(src_uri="start/deploy.md"))
    text = "[a](../../deploy) [b](../index.md#x) [c](../../README.md#figures) [d](https://e.example)\n```\n[e](../../x)\n```"
    assert site_hooks.on_page_markdown(text, page, config) == (
        "[a](https://code.example/tree/main/deploy) [b](../index.md#x) "
        "[c](https://code.example/blob/main/README.md#figures) [d](https://e.example)\n```\n[e](../../x)\n```"
    )


def test_a_folder_of_the_navigation_stands_for_its_pages(tmp_path: Path) -> None:
    for name in ("index.md", "b.md", "a.md"):
        (tmp_path / "x" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "x" / name).touch()
    assert site_hooks.expanded([{"X": ["x/index.md", "x/*"]}], tmp_path) == [{"X": ["x/index.md", "x/a.md", "x/b.md"]}]


def test_the_pictures_are_what_the_tables_say() -> None:
    command = [sys.executable, str(ROOT / "scripts/site_pictures"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = [
        line
        for line in (ROOT / "docs/reference/metrics.md").read_text().splitlines()
        if "| `jitney_replicas` |" in line
    ]
    assert set(re.findall(r"`(\w+)`", row.split("|")[4])) == set(states.STATES)


def test_a_folder_of_pages_has_at_most_ten_things() -> None:
    folders = [path for path in (ROOT / "docs").rglob("*") if path.is_dir()]
    counts = {path.relative_to(ROOT).as_posix(): len(list(path.iterdir())) for path in folders}
    assert counts.pop("docs/design") > 20, "one note for each subject, in the order in which they were written"
    assert {name: count for name, count in counts.items() if count > 10} == {}
