"""Python refuses the names that Rust would refuse, and no others: a name is refused where it was written."""

import re
from pathlib import Path

from jitney.deployment import RESERVED
from jitney.types import TOKENS

PLAN = Path(__file__).resolve().parents[2] / "crates/server/src/plan.rs"


def test_python_and_rust_reserve_the_same_names() -> None:
    found = re.search(r"pub const RESERVED: &\[&str\] =\s*&\[(.*?)\];", PLAN.read_text(), re.DOTALL)
    assert found, "plan.rs says which names are reserved"
    assert set(re.findall(r'"([^"]+)"', found[1])) == RESERVED


def test_counts_of_tokens_have_one_name() -> None:
    found = re.search(r'const TOKENS: &str = "([^"]+)"', (PLAN.parent / "call.rs").read_text())
    assert found
    assert found[1] == TOKENS
    assert not TOKENS.isidentifier(), "or a user's array could be called so"
