"""Constructor arguments: text of `--set` and values of other layers, as the types that the constructor says."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from jitney.config.init_arguments import constructor_arguments
from jitney.config.layers import Overrides, SetText, resolve
from jitney.config.reading import read_overrides
from jitney.errors import ConfigError


class Kind(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Handle:
    """A type that only its author can make."""


@dataclass
class Scale:
    low: float
    high: float


class Model:
    def __init__(
        self,
        *,
        labels: list[str] = [],  # noqa: B006 -- as users write it
        sizes: "list[int]" = None,  # pyright: ignore[reportArgumentType]  # noqa: RUF013
        maybe: list[str] | None = None,
        pair: tuple[int, int] = (1, 2),
        weights: dict[str, float] | None = None,
        path: Path = Path(),
        kind: Kind = Kind.SMALL,
        mode: Literal["fast", "exact"] = "fast",
        scale: Scale | None = None,
        handle: Handle | None = None,
        name: str | None = None,
        either: int | str = 1,
        count: int = 1,
        ratio: float | None = None,
        flag: bool = False,
        grid: list[list[float]] | None = None,
        api_key: int = 0,
        free=None,  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    ) -> None: ...


def given(key: str, value: object) -> object:
    return constructor_arguments("m", Model, {key: value})[key]


@pytest.mark.parametrize(
    ("key", "text", "means"),
    [
        ("labels", '["a","b"]', ["a", "b"]),
        ("labels", "a, b", ["a", "b"]),
        ("labels", "true", ["true"]),
        ("labels", "", []),
        ("sizes", "[1, 2]", [1, 2]),
        ("sizes", "5", [5]),
        ("sizes", "1,2", [1, 2]),
        ("sizes", "none", None),
        ("maybe", "none", None),
        ("maybe", "a", ["a"]),
        ("pair", "[3, 4]", (3, 4)),
        ("weights", "{a = 1}", {"a": 1.0}),
        ("weights", '{"a": 1}', {"a": 1.0}),
        ("path", "5", Path("5")),
        ("kind", "large", Kind.LARGE),
        ("mode", "exact", "exact"),
        ("scale", "{low = 0, high = 1}", Scale(0, 1)),
        ("handle", "5", 5),
        ("handle", "cuda:0", "cuda:0"),
        ("name", "5", "5"),
        ("name", "none", "none"),
        ("either", "5", "5"),
        ("flag", "yes", True),
        ("ratio", "none", None),
        ("ratio", "1", 1.0),
        ("grid", "[[1, 2]]", [[1.0, 2.0]]),
        ("free", "5", 5),
        ("free", "a,b", "a,b"),
    ],
)
def test_text_becomes_what_the_constructor_says(key: str, text: str, means: object) -> None:
    value = given(key, SetText(text))
    assert (value, type(value)) == (means, type(means))


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("labels", "[1, 2]", r"expected list\[str\], got '\[1, 2\]'"),
        ("sizes", "x", r"expected list\[int\] or none, got 'x'"),
        ("weights", "x", r"expected dict\[str, float\] or none, got 'x'"),
        ("kind", "huge", "expected one of 'small', 'large', got 'huge'"),
        ("mode", "slow", "expected one of 'fast', 'exact', got 'slow'"),
        ("count", "two", "expected a whole number, got 'two'"),
        ("count", "none", "expected a whole number, got 'none'"),
        ("api_key", "hunter2", "expected a whole number$"),
    ],
)
def test_text_that_does_not_fit_is_named_with_what_was_expected(key: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--set m\.init\.{key}: {says}"):
        given(key, SetText(text))


@pytest.mark.parametrize(
    ("key", "value", "becomes"),
    [
        ("labels", ["a"], ["a"]),
        ("sizes", None, None),
        ("pair", [3, 4], (3, 4)),
        ("path", "weights.bin", Path("weights.bin")),
        ("kind", "large", Kind.LARGE),
        ("ratio", 1, 1.0),
        ("handle", 3, 3),
        ("either", 3, 3),
        ("free", "5", "5"),
    ],
)
def test_values_of_the_file_and_of_programs_become_it_too(key: str, value: object, becomes: object) -> None:
    got = given(key, value)
    assert (got, type(got)) == (becomes, type(becomes))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("count", "2", "expected a whole number, got '2'"),
        ("count", True, "expected a whole number, got True"),
        ("name", 5, "expected a string or none, got 5"),
        ("labels", "a", r"expected list\[str\], got 'a'"),
        ("labels", ["a", 1], r"expected list\[str\], at \$\[1\], got \['a', 1\]"),
        ("path", 3, "expected Path, got 3"),
        ("mode", "slow", "expected one of 'fast', 'exact', got 'slow'"),
        ("api_key", "hunter2", "expected a whole number$"),
    ],
)
def test_values_that_do_not_fit_are_refused(key: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^constructor argument `m\.init\.{key}`: {says}"):
        given(key, value)


def test_every_layer_gets_there(tmp_path: Path) -> None:
    file = tmp_path / "jitney.toml"
    file.write_text("[deployment.m.init]\nkind = 'large'\nlabels = ['a']\n")
    overrides = read_overrides(str(file), {}, ["m.init.labels=b,c"])
    overrides.give("m.init.path", "weights.bin")
    init = resolve("m", {}, Overrides.from_json(overrides.to_json())).init
    assert constructor_arguments("m", Model, init) == {
        "kind": Kind.LARGE, "labels": ["b", "c"], "path": Path("weights.bin"),
    }  # fmt: skip


def test_annotations_that_cannot_be_read_leave_values_as_they_are() -> None:
    class Later:
        def __init__(self, size: "Missing" = 1, **more: int) -> None: ...  # noqa: F821  # pyright: ignore

    kind: Callable[..., Any] = Later
    init = {"size": SetText("5"), "other": SetText("[1]"), "third": "x"}
    assert constructor_arguments("m", kind, init) == {"size": 5, "other": [1], "third": "x"}  # pyright: ignore[reportArgumentType]
