"""An item with a value that a Literal does not have is refused with the values that it has."""

import enum
from typing import Any, Literal

import msgspec
import pytest
from batches import one
from fake_link import TAG_JSON

Style = Literal["oil", "pencil"]


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


class Layer(msgspec.Struct):
    style: Style = "oil"


class Prompt(msgspec.Struct):
    style: Style | None = None
    speed: Speed = Speed.SLOW
    layers: list[Layer] = []
    named: dict[str, Layer] = {}
    size: Literal[1, 2] = 1


def paint(prompts: list[Prompt]) -> list[str]:
    return ["painted" for _ in prompts]


def draw(styles: list[Style]) -> list[str]:
    return list(styles)


@pytest.mark.parametrize(
    ("item", "field", "choices"),
    [
        ({"style": "water"}, "$.style", "'oil', 'pencil'"),
        ({"speed": "water"}, "$.speed", "'fast', 'slow'"),
        ({"layers": [{}, {"style": "water"}]}, "$.layers[1].style", "'oil', 'pencil'"),
        ({"named": {"a": {"style": "water"}}}, "$.named[...].style", "'oil', 'pencil'"),
        ({"size": 3}, "$.size", "1, 2"),
    ],
)
def test_the_refusal_names_the_values_that_are_taken(item: dict[str, Any], field: str, choices: str) -> None:
    (refused,) = one(paint, [msgspec.json.encode(item)], tag=TAG_JSON)
    wrong = "3" if "size" in item else "'water'"
    assert (refused.detail, refused.field) == (f"{field}: Invalid enum value {wrong}, not one of {choices}", field)


def test_so_it_does_where_the_item_itself_is_the_value() -> None:
    (refused,) = one(draw, [b'"water"'], tag=TAG_JSON)
    assert (refused.detail, refused.field) == ("$: Invalid enum value 'water', not one of 'oil', 'pencil'", "$")
