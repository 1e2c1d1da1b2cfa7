"""`jitney secret`: a file that only its owner may read."""

import os
import stat
from pathlib import Path

import pytest
from jitney.cli.main import main


def test_a_secret_is_random_and_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    mask = os.umask(0)
    try:
        assert main(["secret", str(first)]) == main(["secret", str(second)]) == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert len(first.read_text().strip()) >= 32
    assert first.read_text() != second.read_text()
    assert first.read_text().strip() not in capsys.readouterr().out


def test_a_secret_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("in use")
    link.symlink_to(tmp_path / "target")
    assert main(["secret", str(path)]) == main(["secret", str(link)]) == 2
    assert path.read_text() == "in use"
    assert not (tmp_path / "target").exists()
    assert "exists; remove it first" in capsys.readouterr().err
    assert main(["secret", str(tmp_path / "missing" / "a")]) == 2
    assert "cannot be made" in capsys.readouterr().err
