"""Python refuses the names that Rust would refuse, and no others: a name is refused where it was written."""

from jitney import _core
from jitney.deployments.deployment import RESERVED
from jitney.types.arrays import TOKENS


def test_python_and_rust_reserve_the_same_names() -> None:
    assert set(_core.reserved_names()) == RESERVED


def test_counts_of_tokens_have_a_name_that_no_array_can_have() -> None:
    assert not TOKENS.isidentifier()
