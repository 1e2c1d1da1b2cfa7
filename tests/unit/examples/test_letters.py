"""The letters of `examples/letters.py`: a text does not depend on the texts next to it."""

import sys
from pathlib import Path

import jitney
import jitney.testing
import pytest
from steps_alone import run

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from letters import Letters, Prompt


@pytest.fixture(scope="module")
def model() -> Letters:
    return Letters()


PROMPTS = [
    Prompt(text, max_tokens=most, seed=seed, temperature=0.8)
    for seed, (text, most) in enumerate([("a bus ", 60), ("the", 9), ("Wh", 40), ("s", 5), ("x", 80)])
]


def test_a_text_alone_is_as_in_company(model: Letters) -> None:
    together = run(model, PROMPTS, joins={2: 2, 3: 2, 4: 3})
    alone = [run(model, [prompt])[0] for prompt in PROMPTS]
    assert together == alone
    assert len({"".join(answer.parts) for answer in alone}) == len(PROMPTS)


def test_a_text_ends_with_a_sentence_or_when_it_is_long_enough(model: Letters) -> None:
    ends = [
        answer.end for answer in run(model, [Prompt("a bus ", max_tokens=9_000, seed=3), Prompt("a", max_tokens=4)])
    ]
    assert [end.reason for end in ends] == ["stop", "length"]
    assert ends[0].part == "."
    assert ends[1].usage == jitney.Usage(1, 4)


def test_a_prompt_of_other_letters_is_refused(model: Letters) -> None:
    refused = [answer.end for answer in run(model, [Prompt("é"), Prompt(""), Prompt("the", max_tokens=3)])]
    assert [isinstance(end, jitney.InvalidInput) for end in refused] == [True, True, False]


def test_who_takes_no_parts_gets_the_text() -> None:
    with jitney.testing.inline(Letters) as models:
        text = models["letters"](Prompt("a bus ", max_tokens=30, seed=3))
        assert isinstance(text, str)
        assert 1 <= len(text) <= 30
