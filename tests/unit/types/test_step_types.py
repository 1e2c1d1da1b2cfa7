from typing import Any

import jitney
import pytest

End: Any = jitney.End
Usage: Any = jitney.Usage


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: End(reason=7), TypeError, "jitney.End: reason=7 has type int; write a str"),
        (lambda: End(usage=(1, 2)), TypeError, r"jitney.End: usage=\(1, 2\) has type tuple; write jitney.Usage"),
        (lambda: Usage(1, "a"), TypeError, "jitney.Usage: output='a' has type str; write an int"),
        (lambda: Usage(-1, 2), ValueError, "jitney.Usage: input=-1 is not a count of tokens"),
        (lambda: Usage(1, 2**64), ValueError, "jitney.Usage: output=18446744073709551616 is not a count"),
    ],
)
def test_an_end_that_cannot_be_sent_is_refused_where_it_is_made(
    make: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()
