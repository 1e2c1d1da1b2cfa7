"""What a model that answers in parts says of one item: a part, `jitney.End`, an exception, or None for nothing yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeAlias, Union, cast

from jitney.errors import InvalidOutput

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar


class Nothing:
    """What is not given, where None may be a value."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()


class Later:
    """What `admit` returns for an item for which the model has no room now."""

    def __repr__(self) -> str:
        return "jitney.LATER"


_MOST_TOKENS: Final = 2**64 - 1

LATER: Final = Later()
"""The item stays first in line. It is offered again when another item of this replica has ended."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens an item took: those of its input, and those of its answer."""

    input: int
    output: int

    def __post_init__(self) -> None:
        """Refuse what is not a count."""
        for name, count in (("input", cast("Any", self.input)), ("output", cast("Any", self.output))):
            if not isinstance(count, int):
                raise TypeError(f"jitney.Usage: {name}={count!r} has type {type(count).__qualname__}; write an int")
            if not 0 <= count <= _MOST_TOKENS:
                raise ValueError(f"jitney.Usage: {name}={count!r} is not a count of tokens; write 0 to {_MOST_TOKENS}")


P = TypeVar("P")
if TYPE_CHECKING:
    A = TypeVar("A", default=Any)
else:
    A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class End(Generic[A]):
    """The last that a model says of an item.

    `part` is a last part. `answer` is the whole answer, for clients that do not take parts; without it they get the
    parts put together: text and bytes in a row, anything else as a list. `reason` says why the answer ended, as in
    "stop" or "length". `usage` counts tokens.
    """

    part: Any = NOTHING
    answer: A = field(default=NOTHING)  # pyright: ignore[reportAssignmentType]
    reason: str = "stop"
    usage: Usage | None = None

    def __post_init__(self) -> None:
        """Refuse a reason or a usage that cannot be sent."""
        reason, usage = cast("Any", self.reason), cast("Any", self.usage)
        if not isinstance(reason, str):
            raise TypeError(f"jitney.End: reason={reason!r} has type {type(reason).__qualname__}; write a str")
        if usage is not None and not isinstance(usage, Usage):
            raise TypeError(
                f"jitney.End: usage={usage!r} has type {type(usage).__qualname__}; write jitney.Usage(…, …)"
            )


def counted(outcomes: Any, count: int, did: str = "predict yielded", what: str = "outcomes") -> Sequence[Any]:
    """Return the outcomes of a step; InvalidOutput unless there is one for each item."""
    if not isinstance(outcomes, (list, tuple)):
        got = f"a {type(outcomes).__qualname__}"
        raise InvalidOutput(f"{did} {got}; expected a list of {count} {what}, one per item, in order")
    sized = cast("Sequence[Any]", outcomes)
    if len(sized) != count:
        raise InvalidOutput(f"{did} {len(sized)} {what} for {count} items; expected one per item, in order")
    return sized


@dataclass(frozen=True, slots=True)
class Declared:
    """What an annotation `Step[part, answer]` says."""

    part: Any
    answer: Any = NOTHING


if TYPE_CHECKING:
    Step: TypeAlias = P | End[A] | Exception | None
else:

    class Step:
        """`Step[P]` is what a model says of one item: a part of type P, End, an exception, or None for nothing yet.

        `Step[P, A]` says that the whole answer is an A, which `End` gives.
        """

        def __class_getitem__(cls, of: Any) -> Any:
            """Return the union, and what it was made of."""
            part, *answer = of if isinstance(of, tuple) else (of,)
            return Annotated[Union[part, End, Exception, None], Declared(part, *answer)]  # noqa: UP007
