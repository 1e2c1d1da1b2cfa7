"""A model that works in steps: items join and leave between two of them, and each state is released once."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jitney
import pytest
from fake_link import FakeBatch, FakeResults
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.deployments.model import StepFunctions, as_generator
from jitney.errors import InvalidInput, InvalidOutput, OutOfMemory, WorkerBroken
from jitney.signature.annotations import read_step_signature
from jitney.worker.health import Health
from jitney.worker.streams.loop import StepLoop
from jitney.worker.streams.replica import StreamReplica
from jitney.worker.streams.whole import whole


@dataclass
class Keyed(FakeBatch):
    """Items that may join, all of one group key."""

    key: int = 1
    takes_parts: set[int] = field(default_factory=lambda: set(range(10)))

    @property
    def keys(self) -> list[int]:
        return [self.key] * len(self.items)


@dataclass
class Sent:
    """One step as the front hears of it."""

    active: int
    joined: int
    is_out_of_memory: bool = False


class Link:
    """Lets batches arrive before given steps; ends when all were taken."""

    def __init__(self, arrivals: dict[int, list[Keyed]]) -> None:
        self._arrivals = {step: deque(batches) for step, batches in arrivals.items()}
        self.steps: list[Sent] = []
        self.results: list[FakeResults] = []
        self.begun: list[int] = []
        self.stopped: dict[int, list[int]] = {}
        """From each of these steps on: the items that are paused."""
        self.waits = 0

    def paused(self) -> list[int]:
        reached = [step for step in self.stopped if step <= len(self.steps)]
        return self.stopped[max(reached)] if reached else []

    def changes(self) -> int:
        return self.waits

    def wait_for_change(self, changes: int, timeout_s: float) -> None:
        assert changes == self.waits and 0 < timeout_s <= 1
        self.waits += 1

    def _due(self) -> Keyed | None:
        due = [batches for step, batches in self._arrivals.items() if step <= len(self.steps) and batches]
        return due[0].popleft() if due else None

    def next_batch(self, timeout_s: float | None = None) -> Keyed | None:
        del timeout_s
        waiting = [batches for _, batches in sorted(self._arrivals.items()) if batches]
        return waiting[0].popleft() if waiting else None

    def started(self, batch: Keyed) -> None:
        self.begun.append(batch.id)

    def take(self) -> tuple[Keyed | None, bool]:
        return self._due(), True

    def send_step(
        self,
        batches: Sequence[FakeResults],
        active: int,
        joined: int,
        step_s: float,
        join_s: float,
        *,
        out_of_memory: bool = False,
    ) -> None:
        assert min(step_s, join_s) >= 0
        self.steps.append(Sent(active, joined, out_of_memory))
        self.results += [results for results in batches if results not in self.results]

    def said(self) -> list[tuple[int, str]]:
        return [part for results in self.results for part in results.of_parts.said]

    def reasons(self) -> list[list[str]]:
        return [[results.outcomes[index].reason for index in sorted(results.outcomes)] for results in self.results]


@dataclass
class State:
    text: str
    at: int = 0


class Spell:
    """Says a letter a step. It cannot say `!`; it refuses `?`, and `-` makes it say nothing for a step."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.admitted: list[State] = []
        self.released: list[State] = []
        self.room = 100

    def admit(self, texts: list[str]) -> list[State | Exception | jitney.Later]:
        states: list[State | Exception] = [State(text) if text != "?" else InvalidInput("no text") for text in texts]
        held = len(self.admitted) - len(self.released)
        kept: list[State | Exception | jitney.Later] = [
            state if place + held < self.room else jitney.LATER for place, state in enumerate(states)
        ]
        self.admitted += [state for state in kept if isinstance(state, State)]
        return kept

    def step(self, states: list[State]) -> list[jitney.Step[str]]:
        self.calls.append([state.text for state in states])
        if any(state.text[state.at] == "!" for state in states):
            raise ValueError("no shouting")
        return [self.say(state) for state in states]

    def say(self, state: State) -> jitney.Step[str]:
        letter = state.text[state.at]
        state.at += 1
        if state.at == len(state.text):
            return jitney.End(letter)
        return None if letter == "-" else letter

    def release(self, states: list[State]) -> None:
        self.released += states

    def assert_all_released(self) -> None:
        assert sorted(map(id, self.released)) == sorted(map(id, self.admitted)), "each state once"


def run(
    model: Any, arrivals: dict[int, list[Keyed]], *, stopped: dict[int, list[int]] | None = None, **options: Any
) -> Link:
    link, in_force, health = Link(arrivals), DeploymentOptions(**options), Health()
    link.stopped = stopped or {}
    kind = cast("Any", type(model))
    codec = Codec(read_step_signature(kind.admit, kind.step), in_force)
    functions = StepFunctions(model.admit, model.step, getattr(model, "release", None))
    replica = StreamReplica(
        cast("Any", link), as_generator(functions), codec, in_force, cast("Any", FakeResults), health=health
    )
    loop = StepLoop(
        cast("Any", link), functions, replica, retry=in_force.retry, health=health, crash=lambda: pytest.fail("crash")
    )
    loop.run()
    return link


def test_the_log_names_the_method_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    class Picky(Spell):
        def admit(self, texts: list[str]) -> list[State | Exception | jitney.Later]:
            if "7" in texts:
                raise ValueError("no digits")
            return super().admit(texts)

        def release(self, states: list[State]) -> None:
            raise ValueError("no end")

    run(Picky(), {0: [Keyed(1, ["7"])], 1: [Keyed(2, ["a!"])]})
    said = capsys.readouterr().err
    for line in ("admit failed: ValueError: no digits", "step failed: ValueError: no shouting", "release failed"):
        assert line in said, line
    assert "predict" not in said


def test_an_empty_model_without_room_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    full = Spell()
    full.room = 0
    run(full, {0: [Keyed(1, ["a"])], 1: [Keyed(2, ["b"])]})
    assert capsys.readouterr().err.count("admit returned jitney.LATER while the model held no item") == 1
    busy = Spell()
    busy.room = 1
    run(busy, {0: [Keyed(1, ["abc"])], 1: [Keyed(2, ["b"])]})
    assert "jitney.LATER" not in capsys.readouterr().err


def test_items_join_and_leave_between_steps() -> None:
    model = Spell()
    link = run(model, {0: [Keyed(1, ["abc"])], 1: [Keyed(2, ["xy", "z"])]})
    assert model.calls == [["abc"], ["abc", "xy", "z"], ["abc", "xy"]]
    assert [(step.active, step.joined) for step in link.steps] == [(1, 1), (3, 2), (2, 0)]
    assert link.said() == [(0, "a"), (0, "b"), (0, "c"), (0, "x"), (1, "z"), (0, "y")]
    assert [results.ends for results in link.results] == [{0: ("stop", None)}, {0: ("stop", None), 1: ("stop", None)}]
    model.assert_all_released()


def test_without_retry_the_front_hears_that_items_have_started() -> None:
    arrivals = {0: [Keyed(1, ["ab"])], 1: [Keyed(2, ["cd"])]}
    assert run(Spell(), arrivals, retry=False).begun == [1, 2]
    assert run(Spell(), {0: [Keyed(1, ["ab"])]}).begun == []


def test_an_item_whose_client_takes_no_parts_gets_them_together() -> None:
    link = run(Spell(), {0: [Keyed(1, ["a-c", "xy"], takes_parts={1})]})
    [results] = link.results
    assert results.outcomes[0].value == (2, b"ac", None)
    assert link.said() == [(1, "x"), (1, "y")]


def test_a_paused_item_keeps_its_place_and_makes_no_step() -> None:
    model = Spell()
    link = run(model, {0: [Keyed(1, ["abcd", "xyz"])]}, stopped={1: [1000], 3: []})
    assert model.calls == [["abcd", "xyz"], ["xyz"], ["xyz"], ["abcd"], ["abcd"], ["abcd"]]
    said = [[text for place, text in link.said() if place == item] for item in range(2)]
    assert (said, link.waits) == ([list("abcd"), list("xyz")], 0), "each part once, in order"
    model.assert_all_released()


def test_a_worker_whose_items_are_all_paused_waits_and_shows_that_it_lives() -> None:
    model = Spell()
    link = run(model, {0: [Keyed(1, ["ab"])]}, stopped={1: [1000], 4: []})
    assert (model.calls, link.waits) == ([["ab"], ["ab"]], 3)
    assert [step.active for step in link.steps] == [1, 0, 0, 0, 1]


def test_a_paused_item_whose_client_leaves_is_released() -> None:
    model, batch = Spell(), Keyed(1, ["abc"])
    joins = Keyed(2, ["x"])
    stops = {1: [1000]}
    model.step = lambda states, step=model.step: (batch.unwanted.add(0), step(states))[1]  # pyright: ignore
    link = run(model, {0: [batch], 2: [joins]}, stopped=stops)
    assert link.reasons()[0] == ["cancelled"]
    model.assert_all_released()


def test_items_of_another_key_go_on_while_those_of_one_are_paused() -> None:
    model = Spell()
    run(model, {0: [Keyed(1, ["aaa"], key=1), Keyed(2, ["bbb"], key=2)]}, stopped={2: [1000], 4: []})
    assert model.calls[2:4] == [["bbb"], ["bbb"]]
    assert sorted(model.calls) == [["aaa"]] * 3 + [["bbb"]] * 3


def test_a_failing_state_is_found_and_the_others_go_on() -> None:
    model = Spell()
    link = run(model, {0: [Keyed(1, ["ab", "c!", "de", "fg"])]})
    assert link.reasons() == [["ok", "model_failed", "ok", "ok"]]
    said = [[text for place, text in link.said() if place == item] for item in range(4)]
    assert said == [["a", "b"], ["c"], ["d", "e"], ["f", "g"]]
    model.assert_all_released()


def test_without_retry_a_failing_step_fails_all_its_items() -> None:
    model = Spell()
    assert run(model, {0: [Keyed(1, ["ab", "c!"])]}, retry=False).reasons() == [["model_failed", "model_failed"]]
    model.assert_all_released()


def test_what_admit_refuses_never_gets_to_a_step() -> None:
    model = Spell()
    link = run(model, {0: [Keyed(1, ["?", "a"])], 1: [Keyed(2, ["?"])]})
    assert link.reasons() == [["invalid_input", "ok"], ["invalid_input"]]
    assert model.calls == [["a"]]


def test_an_item_without_room_is_given_back() -> None:
    later: list[int] = []

    class Results(FakeResults):
        def later(self, index: int) -> None:
            later.append(index)

    model, link = Spell(), Link({0: [Keyed(1, ["ab", "cd"])]})
    model.room = 1
    in_force, health = DeploymentOptions(), Health()
    functions = StepFunctions(model.admit, model.step, model.release)
    codec = Codec(read_step_signature(Spell.admit, Spell.step), in_force)
    replica = StreamReplica(cast("Any", link), as_generator(functions), codec, in_force, cast("Any", Results))
    StepLoop(cast("Any", link), functions, replica, retry=True, health=health).run()
    assert (later, model.calls) == ([1], [["ab"], ["ab"]])
    model.assert_all_released()


def test_keys_take_turns_by_the_time_that_was_spent_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("jitney.worker.streams.loop.perf_counter", lambda: clock[0])

    class Slow(Spell):
        def step(self, states: list[State]) -> list[jitney.Step[str]]:
            clock[0] += 4.0 if states[0].text.startswith("L") else 1.0
            return super().step(states)

    model = Slow()
    run(model, {0: [Keyed(1, ["L" * 4], key=1), Keyed(2, ["s" * 9], key=2)]})
    large = [place for place, call in enumerate(model.calls) if call == ["LLLL"]]
    assert all(len(set(call)) == 1 for call in model.calls), "no step has items of two keys"
    assert [after - before for before, after in itertools.pairwise(large)] == [5, 5, 2], "while the other has items"


def test_an_item_that_no_client_waits_for_leaves_at_the_next_boundary() -> None:
    model, batch = Spell(), Keyed(1, ["abcdef", "xyz"])

    class Leaving(Link):
        def take(self) -> tuple[Keyed | None, bool]:
            if len(self.steps) == 2:
                batch.unwanted.add(0)
            return super().take()

    Spell.admit.__get__(model)
    link = Leaving({0: [batch]})
    in_force = DeploymentOptions()
    functions = StepFunctions(model.admit, model.step, model.release)
    codec = Codec(read_step_signature(Spell.admit, Spell.step), in_force)
    replica = StreamReplica(cast("Any", link), as_generator(functions), codec, in_force, cast("Any", FakeResults))
    StepLoop(cast("Any", link), functions, replica, retry=True, health=Health()).run()
    assert [len(call) for call in model.calls] == [2, 2, 1]
    assert link.reasons() == [["cancelled", "ok"]]
    model.assert_all_released()


@pytest.mark.parametrize("wrong", [[], ["a", "b", "c"], "ab", None])
def test_a_step_without_an_outcome_for_each_state_fails_them(wrong: Any) -> None:
    class Wrong(Spell):
        def step(self, states: list[State]) -> list[jitney.Step[str]]:
            return wrong

    model = Wrong()
    assert run(model, {0: [Keyed(1, ["ab", "cd"])]}).reasons() == [["invalid_output"] * 2]
    model.assert_all_released()


def test_a_broken_model_ends_the_worker() -> None:
    class Broken(Spell):
        def step(self, states: list[State]) -> list[jitney.Step[str]]:
            raise WorkerBroken("the device does not answer")

    with pytest.raises(WorkerBroken):
        run(Broken(), {0: [Keyed(1, ["ab"])]})


class Small(Spell):
    """A model of which no more than two items fit into the memory of the device."""

    def step(self, states: list[State]) -> list[jitney.Step[str]]:
        if len(states) > 2:
            raise OutOfMemory("only two fit")
        return super().step(states)


def test_too_little_memory_is_met_with_smaller_steps() -> None:
    link = run(Small(), {0: [Keyed(1, ["ab", "cd", "ef", "gh"])]})
    assert link.reasons() == [["ok"] * 4]


def test_items_that_are_too_many_for_the_memory_are_reported_and_the_newest_is_given_back() -> None:
    model = Small()
    link = run(model, {0: [Keyed(1, ["abcd", "efgh", "ijkl", "mnop"], takes_parts=set())]})
    assert link.reasons() == [["ok", "ok", "later", "later"]]
    assert [step.is_out_of_memory for step in link.steps] == [True, True, False, False]
    model.assert_all_released()


def test_an_item_that_does_not_fit_next_to_others_is_given_back_and_one_alone_fails() -> None:
    class Full(Spell):
        def admit(self, texts: list[str]) -> list[State | Exception | jitney.Later]:
            if len(self.admitted) - len(self.released) + len(texts) > 1 or texts == ["huge"]:
                raise MemoryError
            return super().admit(texts)

    model = Full()
    link = run(model, {0: [Keyed(1, ["abc"])], 1: [Keyed(2, ["x"])], 4: [Keyed(3, ["huge"])]})
    assert link.reasons() == [["ok"], ["later"], ["model_failed"]]
    assert [step.is_out_of_memory for step in link.steps] == [False, True, False, False]
    model.assert_all_released()


def test_warm_up_and_checks_run_a_whole_batch() -> None:
    model = Spell()
    codec = Codec(read_step_signature(Spell.admit, Spell.step), DeploymentOptions())
    functions = StepFunctions(model.admit, model.step, model.release)
    answers = whole(as_generator(functions), codec, batched=True)(["ab", "?", "c"])
    assert isinstance(answers, list) and answers[0] == "ab" and answers[2] == "c"
    assert isinstance(answers[1], InvalidInput)
    model.assert_all_released()


def test_warm_up_and_checks_offer_an_item_again_for_which_there_was_no_room() -> None:
    model = Spell()
    model.room = 2
    codec = Codec(read_step_signature(Spell.admit, Spell.step), DeploymentOptions())
    functions = StepFunctions(model.admit, model.step, model.release)
    run = whole(as_generator(functions), codec, batched=True)
    assert run(["ab", "cd", "e", "fgh"]) == ["ab", "cd", "e", "fgh"]
    model.assert_all_released()
    model.room = 0
    with pytest.raises(InvalidOutput, match="none would ever fit"):
        run(["ab"])


def refused(kind: Callable[..., Any], words: str) -> None:
    with pytest.raises(jitney.TargetError, match=words):
        jitney.Deployment(kind, {}).signature  # noqa: B018 -- read when first asked for


def test_what_cannot_work_in_steps_is_refused_in_clear_words() -> None:
    class NoList:
        def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]) -> str: ...

    class NoType:
        def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]): ...

    class Later:
        async def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]) -> list[str]: ...

    refused(NoList, r"step returns str; it returns a list with what is new of each item: list\[jitney.Step\[str\]\]")
    refused(NoType, "step returns nothing that is annotated")
    refused(Later, "admit is `async def`: write `def admit`")


def test_a_release_without_states_and_a_step_that_yields_are_refused() -> None:
    class NoStates:
        def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]) -> list[jitney.Step[str]]: ...
        def release(self) -> None: ...

    class Yields:
        def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]) -> Iterator[list[jitney.Step[str, int]]]: ...

    refused(NoStates, r"release takes one list, the states of several items: write `def release\(self, states\)`")
    refused(Yields, r"returns .*Iterator\[list\[jitney.Step\[str, int\]\]\]; it returns a list")


def test_a_class_that_would_lose_its_steps_is_refused() -> None:
    class Half:
        def admit(self, texts: list[str]) -> list[str]: ...

    class OtherHalf:
        def step(self, states: list[str]) -> list[jitney.Step[str]]: ...

    class Both:
        def predict(self, texts: list[str]) -> list[str]: ...
        def admit(self, texts: list[str]) -> list[str]: ...
        def step(self, states: list[str]) -> list[jitney.Step[str]]: ...

    refused(Half, "Half has `admit`, but no `step`")
    refused(OtherHalf, "OtherHalf has `step`, but no `admit`")
    refused(Both, "Both has `predict` and `admit`/`step`: keep one")
