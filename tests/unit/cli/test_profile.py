"""`jitney check --profile`: what is measured, fitted and drawn."""

import pytest
from jitney.cli.check import profile
from jitney.worker.warmup import sizes


def test_sizes_double_up_to_the_largest_batch() -> None:
    assert sizes(1) == [1]
    assert sizes(8) == [1, 2, 4, 8]
    assert sizes(50) == [1, 2, 4, 8, 16, 32, 50]


def test_the_median_of_three_runs_counts() -> None:
    times = iter([1.0, 9.0, 2.0, 4.0, 3.0, 50.0])
    assert profile.measure(lambda _: next(times), 2) == [(1, 2.0), (2, 4.0)]


def test_the_line_is_found_and_never_negative() -> None:
    line = profile.fit([(n, 0.005 + 0.0001 * n) for n in (1, 2, 4, 64)])
    assert (line.launch_s, line.item_s) == (pytest.approx(0.005), pytest.approx(0.0001))
    falling = profile.fit([(1, 4.0), (2, 3.0)])
    assert falling.item_s == 0
    assert profile.fit([(1, 1.0)]).launch_s == 0.5


def test_each_size_is_a_row_whose_bar_is_its_time() -> None:
    rows = profile.drawn([(1, 0.01), (2, 0.02)])
    assert [row.count("█") for row in rows] == [0, profile.WIDTH // 2, profile.WIDTH]
    assert "20.000" in rows[2]
    assert "100" in rows[2]


def test_a_curve_that_is_no_line_is_told() -> None:
    straight = profile.summary_lines([(n, 0.01 + 0.001 * n) for n in (1, 2, 4, 8)])
    assert not any("does not hold" in row for row in straight)
    jump = profile.summary_lines([(1, 0.01), (2, 0.01), (4, 0.01), (8, 0.1)])
    assert any("does not hold" in row for row in jump)
