"""What the front carries out, in one process, and what is refused of it."""

import jitney
import numpy as np
import pytest
from jitney import testing
from jitney.deployments.classes import advised_target, deployment_of
from numpy.typing import NDArray


@jitney.deployment
class Upper:
    def predict(self, texts: list[str]) -> list[str]:
        if "bad first" in texts:
            raise jitney.InvalidInput("not for the first")
        return [text.upper() for text in texts]


@jitney.deployment
class Lengths:
    def predict(self, texts: list[str]) -> NDArray[np.int64]:
        if "BAD" in texts:
            raise jitney.InvalidInput("not for the second")
        return np.array([len(text) for text in texts])


@jitney.deployment
class Words:
    def predict(self, texts: list[str]) -> list[list[str]]:
        return [text.split() for text in texts]


@jitney.deployment
class Untyped:
    def predict(self, texts: list[str]):  # type: ignore[no-untyped-def]
        return texts


@jitney.deployment
class Several:
    def predict(self, texts: list[str]) -> list[str]:
        return texts

    @jitney.method
    def other(self, texts: list[str]) -> list[str]:
        return texts


UpperLengths = jitney.chain(Upper, Lengths)
Both = jitney.together(count=UpperLengths, words=Words)
renamed = jitney.chain(Upper, Words, name="in-capitals")


def test_a_chain_and_an_ensemble_run_in_one_process() -> None:
    with testing.inline(Upper, Lengths, Words, UpperLengths, Both, renamed) as models:
        assert models[UpperLengths]("abc") == 3
        assert models[Both].many(["a b", "c"]) == [{"count": 3, "words": ["a", "b"]}, {"count": 1, "words": ["c"]}]
        assert models["in-capitals"]("a b") == ["A", "B"]


def test_failures_are_those_of_the_front() -> None:
    with testing.inline(Upper, Lengths, Words, UpperLengths, Both) as models:
        with pytest.raises(jitney.InvalidInput, match="upper: not for the first"):
            models[UpperLengths]("bad first")
        with pytest.raises(jitney.ModelFailed, match="lengths: not for the second"):
            models[UpperLengths]("bad")
        answers = models[UpperLengths].many(["abc", "bad"], return_exceptions=True)
        assert isinstance(answers[1], jitney.ModelFailed)


def test_what_is_called_must_be_there() -> None:
    with pytest.raises(jitney.NotFound, match="upper_lengths calls lengths"), testing.inline(Upper, UpperLengths):
        pass


def test_its_name_is_that_of_its_variable() -> None:
    assert [deployment_of(one).name for one in (UpperLengths, Both, renamed)] == [
        "upper_lengths",
        "both",
        "in-capitals",
    ]
    with pytest.raises(jitney.TargetError, match=r"has no name: write `Name = jitney\.chain"):
        deployment_of(jitney.chain(Upper, Words))


def test_what_it_returns_is_described() -> None:
    output = deployment_of(Both).signature.output
    assert (output.kind, list(output.schema["properties"])) == ("object", ["count", "words"])


def test_what_cannot_be_carried_out_is_refused() -> None:
    def refused(said: str, made: jitney.Composed) -> None:
        with pytest.raises(jitney.TargetError, match=said):
            _ = deployment_of(made).signature

    refused("lengths returns int64 of any shape, and upper takes text", jitney.chain(Lengths, Upper, name="a"))
    refused("annotate what the first one returns", jitney.chain(Untyped, Upper, name="a"))
    refused("several serves several methods", jitney.chain(Several, Upper, name="a"))
    with pytest.raises(jitney.ConfigError, match="no option 'max_batch_size'"):
        jitney.chain(Upper, Words, max_batch_size=3)
    with pytest.raises(jitney.TargetError, match="not the name 'upper'"):
        jitney.chain("upper", Words)  # type: ignore[arg-type]
    with pytest.raises(jitney.TargetError, match="takes deployments by name"):
        jitney.together()


def test_options_for_replicas_are_refused_wherever_they_are_set() -> None:
    with testing.inline(Upper, Lengths, UpperLengths, options={"upper_lengths.request_timeout_s": 5}) as models:
        assert models.upper_lengths("abc") == 3
    with (
        pytest.raises(
            jitney.ConfigError, match=r"replicas is for a deployment with a model.*set it for upper, lengths"
        ),
        testing.inline(Upper, Lengths, UpperLengths, options={"upper_lengths.replicas": 2}),
    ):
        pass


def test_how_to_call_chain_and_together_is_said() -> None:
    with pytest.raises(
        jitney.TargetError, match=r"takes two or more deployments, not 1: jitney\.chain\(Detect, Embed\)"
    ):
        jitney.chain(Upper)
    with pytest.raises(jitney.TargetError, match=r"takes deployments by name, as in jitney\.together\(cats=Cats"):
        jitney.together(Upper, Words)


def test_what_to_serve_for_a_deployment_that_is_used() -> None:
    assert advised_target("smollm2", "smollm2") == "smollm2"
    assert advised_target("upper", "upper") is None
    assert advised_target(Upper, "upper") == f"{Upper.__module__}:Upper"
