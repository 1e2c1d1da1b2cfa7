"""The options of how many replicas there are: fixed, or between two bounds."""

import pytest
from jitney.config.layers import Overrides, resolve
from jitney.errors import ConfigError


@pytest.mark.parametrize(
    ("declared", "bounds", "first"),
    [
        ({}, (1, 1), 1),
        ({"replicas": 3}, (3, 3), 3),
        ({"max_replicas": 4}, (1, 4), 1),
        ({"min_replicas": 0}, (0, 1), 1),
        ({"min_replicas": 0, "max_replicas": 4}, (0, 4), 1),
        ({"min_replicas": 2, "max_replicas": 5}, (2, 5), 2),
        ({"min_replicas": 2, "max_replicas": 5, "replicas": 4}, (2, 5), 4),
        ({"max_replicas": 3, "replicas": 2}, (2, 3), 2),
    ],
)
def test_the_number_of_replicas_is_fixed_or_between_two_bounds(
    declared: dict[str, object], bounds: tuple[int, int], first: int
) -> None:
    options = resolve("m", declared, Overrides()).options
    assert (options.replica_bounds(), options.first_replicas()) == (bounds, first)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"min_replicas": 3, "max_replicas": 2},
            r"min_replicas is 3 \(decorator\), but max_replicas is 2 \(decorator\)",
        ),
        ({"min_replicas": 2}, r"min_replicas is 2 \(decorator\), but replicas is 1 \(default\); give a max_replicas"),
        ({"replicas": 5, "max_replicas": 3}, r"replicas is 5 \(decorator\), but max_replicas is 3 \(decorator\)"),
        ({"replicas": 1, "min_replicas": 2, "max_replicas": 3}, r"replicas is 1 .* not between min_replicas = 2 and"),
        ({"scale_down_after_s": 3}, r"scale_down_after_s is 3.0 .* there is always 1 replica; give max_replicas"),
        ({"max_replicas": 5, "min_ready_replicas": 2}, r"min_ready_replicas is 2 .* there may be only 1 replicas"),
        ({"max_replicas": 0}, r"max_replicas"),
    ],
)
def test_bounds_that_do_not_fit_together_are_refused(declared: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("m", declared, Overrides())
