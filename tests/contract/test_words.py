"""The check of words finds what it lists, where people read it, and only there."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("words", ROOT / "scripts/words.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


words = load()


def found(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text)
    return [line.split(": ")[0] for line in words.findings(folder / name, name)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Nobody waits.",
        "It is 5 unless told otherwise.",
        "This is no image.",
        "Short items ride together.",
        "Whoever asks first is first.",
        "A door is a protocol.",
        "What is in is answered.",
        "The guilty item fails.",
        "Those who come later wait.",
        "It runs in a process of its own.",
    ],
)
def test_a_riddle_is_found(tmp_path: Path, sentence: str) -> None:
    assert found(tmp_path, "page.md", f"# Page\n\n{sentence}\n") == ["page.md:3"]


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no wheel.",
        "It is no longer there.",
        "FastAPI, batched by hand: 449",
        "Clients that wait are answered.",
    ],
)
def test_a_plain_sentence_passes(tmp_path: Path, sentence: str) -> None:
    assert found(tmp_path, "page.md", sentence) == []


def test_code_on_a_page_is_not_prose(tmp_path: Path) -> None:
    text = "The flag `--door`, [a page](door.md).\n\n```console\n$ serve --door x\n```\n<!-- a door -->\nThe door.\n"
    assert found(tmp_path, "page.md", text) == ["page.md:7"]


def test_comments_docstrings_and_messages_of_python_are_read_and_names_are_not(tmp_path: Path) -> None:
    code = 'door = 1  # a door\ndef told() -> None:\n    """Say what\n    it was told."""\n'
    text = f'{code}    raise E(f"nobody is {{door}} here")\nkind = "door"\n'
    assert found(tmp_path, "code.py", text) == ["code.py:1", "code.py:4", "code.py:5"]


def test_comments_and_messages_of_rust_are_read_and_names_are_not(tmp_path: Path) -> None:
    code = "/// A door.\nfn door(quote: char) -> bool { quote == '\"' } // told\n"
    text = f'{code}let text = "nobody was\n  told {{door}}";\nlet k = "door";\n'
    assert found(tmp_path, "code.rs", text) == ["code.rs:1", "code.rs:2", "code.rs:3", "code.rs:4"]


def test_an_exception_is_for_one_phrase_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ALLOWED", {("a.md", "the door"): "a reason", ("a.md", "door"): "a reason"})
    assert found(tmp_path, "a.md", "The door. Nobody.") == ["a.md:1"]
    assert len(found(tmp_path, "b.md", "The door.")) == 1


def test_a_file_counts_for_its_longest_root_and_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("Nobody.\n")
    (tmp_path / "docs/b.md").write_text("Nobody.\nNobody.\n")
    counted = words.by_root(tmp_path, {"docs": 0, "docs/b.md": 9})
    assert {name: len(lines) for name, lines in counted.items()} == {"docs": 1, "docs/b.md": 2}
    with pytest.raises(SystemExit, match=r"there is no docs/c\.md"):
        words.by_root(tmp_path, {"docs/c.md": 0})


def test_a_root_above_its_budget_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("Nobody.\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["words.py"])
    for budget, code in ((0, 1), (1, 0)):
        monkeypatch.setattr(words, "BUDGETS", {"a.md": budget})
        assert words.main() == code


def test_the_project_passes() -> None:
    ran = subprocess.run([sys.executable, ROOT / "scripts/words.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
