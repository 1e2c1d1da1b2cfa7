"""`benchmarks/histories.py` in small: one short history, real processes, answers checked."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
histories: Any = importlib.import_module("histories")

LINE = "history\t7\t0.00005\t0.000001\ttrue\t0.5:1:1:0.0001\t1.5:4:3:0.0002"
"""As the simulator prints it: a lone user, then four users who each send three items."""


def test_a_line_of_the_simulator_is_read_and_scaled() -> None:
    history = histories.read(LINE.split("\t")).scaled(4.0)
    assert [(part.seconds, part.users, part.rows) for part in history.parts] == [(1.0, 1, 1), (3.0, 4, 3)]
    assert history.launch_s == pytest.approx(histories.LEAST_LAUNCH_S)
    assert history.item_s == pytest.approx(0.02 * histories.LEAST_LAUNCH_S)


@pytest.mark.parametrize("policy", ["auto", "eager"])
def test_a_history_is_played_and_its_batches_are_counted(policy: str) -> None:
    played = histories.play(histories.read(LINE.split("\t")).scaled(1.0), policy)
    assert played.requests > 0
    assert played.wrong == 0
    assert 0 < played.ones <= played.batches
