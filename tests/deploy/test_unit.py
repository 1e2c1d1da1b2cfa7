"""The systemd unit: systemd reads it without a word, rates its protection, and its limits are those of the options."""

import configparser
import shutil
from pathlib import Path

import pytest
from jitney.config.layers import server_options
from tools import DEPLOY, need, run

UNIT = "jitney@.service"


@pytest.fixture(params=["cpu", "gpu"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit where its program exists: systemd looks for it. With the drop-in for GPUs, or without."""
    need("systemd-analyze")
    text = (DEPLOY / UNIT).read_text()
    assert text.count("/opt/jitney/bin/jitney") == 1
    (tmp_path / UNIT).write_text(text.replace("/opt/jitney/bin/jitney", "/bin/true"))
    if request.param == "gpu":
        shutil.copytree(DEPLOY / f"{UNIT}.d", tmp_path / f"{UNIT}.d")
    # An instance of it, as a file: systemd checks files.
    (tmp_path / "jitney@m.service").write_text((tmp_path / UNIT).read_text())
    if request.param == "gpu":
        shutil.copytree(DEPLOY / f"{UNIT}.d", tmp_path / "jitney@m.service.d")
    return tmp_path


def test_systemd_understands_every_line(folder: Path) -> None:
    verified = run("systemd-analyze", "verify", "--man=no", "./jitney@m.service", cwd=folder)
    assert (verified.stdout, verified.stderr) == ("", ""), "an unknown key is only a line on standard error"


def test_a_key_that_systemd_does_not_know_would_be_found(folder: Path) -> None:
    unit = folder / "jitney@m.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    verified = run("systemd-analyze", "verify", "--man=no", "./jitney@m.service", cwd=folder, check=False)
    assert "WatchdogSecs" in verified.stderr


def test_the_service_is_shut_in(folder: Path) -> None:
    # 0 is the best and 100 the worst. A device and its driver cost 1 or 2.
    run("systemd-analyze", "security", "--offline=true", "--threshold=30", "./jitney@m.service", cwd=folder)


def test_systemd_waits_for_longer_than_a_drain_takes() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read(DEPLOY / UNIT)
    options = server_options()
    stop = float(unit["Service"]["TimeoutStopSec"])
    assert stop >= options["drain_grace_s"].default + options["drain_timeout_s"].default + 6
    assert (unit["Service"]["Type"], unit["Service"]["KillMode"]) == ("notify", "mixed")
