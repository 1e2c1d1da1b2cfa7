"""Every exception of user code is reported: no text of an exception may end a worker."""

import json
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jitney
import pytest
from batches import one
from fake_link import TAG_BYTES, TAG_TEXT
from jitney.codecs.refusals import bounded, refusal
from jitney.errors import InvalidInput, MalformedBody, TargetError
from jitney.failures import (
    FailureLog,
    is_of_user_code,
    load_failure_text,
    one_line,
    print_failure,
    printable,
    relay_through_front,
    user_traceback,
)

OWN = Path(jitney.__file__).parent


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Forgetful(InvalidInput):
    """Does not call the constructor of what it is."""

    def __init__(self) -> None:
        Exception.__init__(self, "forgot")


def odd(field: Any = None, status: Any = 422) -> InvalidInput:
    error = InvalidInput("odd")
    error.field, error.status = field, status
    return error


ODD: tuple[Callable[[], Exception], ...] = (
    lambda: ValueError("file \udc80"),
    lambda: Mute("x"),
    lambda: ValueError("x" * 1_000_000),
    lambda: InvalidInput("file \udc80", field="$.\udc80"),
    lambda: InvalidInput("x" * 1_000_000, field="$" * 10_000),
    lambda: InvalidInput(5),  # pyright: ignore[reportArgumentType]
    lambda: odd(field=3),
    lambda: odd(status="no"),
    lambda: odd(status=999),
    Forgetful,
)


def assert_sayable(text: object) -> None:
    assert type(text) is str
    assert len(text.encode()) <= 4 * 2_000
    assert json.loads(json.dumps(text)) == text


@pytest.mark.parametrize("make", ODD)
def test_every_exception_has_a_line(make: Callable[[], Exception]) -> None:
    assert_sayable(one_line(make()))
    assert_sayable(printable(make()))
    assert_sayable(refusal(make()).message)
    user_traceback(make()).encode()


def test_lines_say_what_they_can() -> None:
    assert one_line(ValueError("file \udc80\nx")) == "ValueError: file \\udc80 x"
    assert one_line(Mute("x")) == "Mute: (its text cannot be shown: RuntimeError)"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("folder", "is_users"),
    [
        (str(OWN), False),
        (f"{OWN}_models", True),  # another package, whose name begins in the same way
        (str(OWN / "models"), True),
        (str(OWN / "models_of_others"), False),
        (sysconfig.get_path("stdlib"), False),
        (f"{sysconfig.get_path('stdlib')}_of_others", True),
        (f"{sysconfig.get_path('purelib')}/torch", True),
    ],
)
def test_a_traceback_begins_in_user_code_wherever_it_is_installed(folder: str, is_users: bool) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", f"{folder}/file.py", "exec"), {})
    error = raised.value
    assert error.__traceback__
    error.__traceback__ = error.__traceback__.tb_next  # without this test's own frame
    assert is_of_user_code(error) == is_users
    failed = TargetError("the target failed")
    failed.__cause__ = error
    assert ("ZeroDivisionError" in load_failure_text(failed)) == is_users


def test_a_good_refusal_stays_what_it_is() -> None:
    for error in (InvalidInput("x", status=413, field="$.a"), MalformedBody("y")):
        assert bounded(error) is error
    assert bounded(Forgetful()).message == "forgot"


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("batched", [True, False])
def test_raised_by_predict_it_is_the_outcome_of_its_item_alone(make: Callable[[], Exception], batched: bool) -> None:
    def batch(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise make()
        return texts

    def single(text: str) -> str:
        return batch([text])[0]

    outcomes = one(batch if batched else single, ["a", "bad", "c"], tag=TAG_TEXT, batched=batched)
    assert [outcome.reason == "ok" for outcome in outcomes] == [True, False, True]
    assert outcomes[1].reason in ("model_failed", "invalid_input")
    assert_sayable(outcomes[1].detail)
    assert outcomes[1].field is None or assert_sayable(outcomes[1].field) is None
    assert outcomes[1].status is None or 400 <= outcomes[1].status <= 499


@pytest.mark.parametrize("make", ODD)
def test_returned_by_predict_it_is_the_outcome_of_its_item_alone(make: Callable[[], Exception]) -> None:
    def predict(texts: list[str]) -> list[Any]:
        return [make() if text == "bad" else text for text in texts]

    outcomes = one(predict, ["a", "bad", "c"], tag=TAG_TEXT)
    assert [outcome.reason == "ok" for outcome in outcomes] == [True, False, True]
    assert_sayable(outcomes[1].detail)
    assert outcomes[1].status is None or 400 <= outcomes[1].status <= 499


def test_an_answer_whose_encoding_fails_oddly_fails_alone() -> None:
    def predict(texts: list[str]) -> list[Any]:
        return ["\udc80", *[{"x": object()} for _ in texts[1:]]]

    outcomes = one(predict, ["a", "b"], tag=TAG_TEXT)
    assert [outcome.reason for outcome in outcomes] == ["invalid_output", "invalid_output"]
    for outcome in outcomes:
        assert_sayable(outcome.detail)


def test_a_terminal_that_is_gone_does_not_fail_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    FailureLog().log("predict", ValueError("x"))


def test_each_kind_has_one_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    failures = FailureLog()

    def fail() -> None:
        raise Mute("\udc80")

    for _ in range(3):
        try:
            fail()
        except Mute as error:
            failures.log("predict", error)
    said = capsys.readouterr().err
    assert (said.count("predict failed"), said.count("Traceback")) == (3, 1)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ImportError("no codec"), "model_failed"),
        (OSError("disk"), "model_failed"),
        (KeyError("x"), "model_failed"),
        (ValueError("no"), "invalid_input"),
        (TypeError("no"), "invalid_input"),
        (AssertionError("no"), "invalid_input"),
        (RecursionError("deep"), "invalid_input"),
    ],
)
def test_decoding_that_fails_is_the_clients_mistake_only_if_it_says_no(error: Exception, reason: str) -> None:
    refused = refusal(error)
    assert refused.reason == reason
    assert str(error) in refused.message


def test_a_fault_while_decoding_is_told_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ImportError("images need a hat")

    monkeypatch.setattr("jitney.types.image.pillow", broken)

    def predict(images: list[jitney.Image]) -> list[str]:
        return ["seen" for _ in images]

    [outcome] = one(predict, [b"x"], tag=TAG_BYTES)
    assert (outcome.reason, outcome.status) == ("model_failed", None)
    assert "ImportError: images need a hat" in outcome.detail
    assert "images need a hat" in capsys.readouterr().err


def fail(failures: FailureLog, source: str = "item 7") -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        failures.log("predict", error, source)


def test_a_failure_is_told_with_its_time_its_replica_and_its_item(capsys: pytest.CaptureFixture[str]) -> None:
    fail(FailureLog("shout/1"))
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z ERROR shout/1: predict failed: ValueError: no \(item 7\)", first)
    assert rest[0].startswith("  Traceback")


def test_each_failure_leads_to_the_request_whose_traceback_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """One traceback for each kind; ten lines a minute, and the eleventh to the hundredth are named in the next line."""
    now = 0.0
    failures = FailureLog("shout/1", clock=lambda: now)
    for number in range(14):
        fail(failures, f"request r{number}")
    now = 61.0
    fail(failures, "request r14")
    lines = [line for line in capsys.readouterr().err.splitlines() if "predict failed" in line]
    assert len(lines) == 1 + 10 + 1
    assert lines[0].endswith(" ERROR shout/1: predict failed: ValueError: no (request r0)")
    assert lines[1].endswith(
        "shout/1: predict failed again, with the traceback of request r0: ValueError: no (request r1)"
    )
    assert lines[-1].endswith(
        "predict failed 4 more times (before this: r11, r12, r13), with the traceback of request r0: "
        "ValueError: no (request r14)"
    )
    for number in range(120):
        fail(failures, f"requests s{number}, t{number}")
    now = 130.0
    fail(failures, "request r15")
    last = capsys.readouterr().err.splitlines()[-1]
    assert "(before this: s9, t9, " in last and "s108, t108 and 11 more)" in last, last
    for number in range(12):
        fail(failures, f"request u{number}")
    capsys.readouterr()
    failures.end()
    assert capsys.readouterr().err.endswith("failed 3 more times, with the traceback of request r0: u9, u10, u11\n")
    failures.end()
    assert capsys.readouterr().err == ""


def test_a_log_of_json_has_failures_as_objects(capsys: pytest.CaptureFixture[str]) -> None:
    failures = FailureLog("shout/1", as_json=True)
    fail(failures)
    fail(failures, "request r2")
    line, again = map(json.loads, capsys.readouterr().err.splitlines())
    assert line["level"] == "ERROR"
    assert line["message"].startswith("shout/1: predict failed")
    assert line["item"] == "7"
    assert (line["deployment"], line["replica"], line["reason"]) == ("shout", 1, "model_failed")
    assert line["traceback"].startswith("Traceback")
    assert (again["request_id"], again["traceback_of"], "traceback" in again) == ("r2", "7", False)
    assert "T" in line["timestamp"]


def test_a_failure_of_a_whole_batch_names_all_its_requests(capsys: pytest.CaptureFixture[str]) -> None:
    def predict(texts: list[str]) -> list[str]:
        raise jitney.Overloaded("not now")

    one(predict, ["a"] * 3, tag=TAG_TEXT)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "predict failed" in line]
    assert re.search(r"not now \(items \d+, \d+, \d+\)$", line), line
    one(predict, ["a"] * 40, tag=TAG_TEXT)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "predict failed" in line]
    assert line.endswith(" and 8 more)") and line.count(", ") >= 31, line


def test_lines_that_the_front_relays_are_marked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitney.failures._is_relayed", False)
    relay_through_front("shout/1")
    fail(FailureLog("shout/1"))
    # `splitlines` would take the mark for the end of a line.
    name, *lines = capfd.readouterr().err.removesuffix("\n").split("\n")
    assert name == "\x1fshout/1"
    assert len(lines) > 3 and all(line.startswith("\x1e") for line in lines), "also those of the traceback"


def test_a_line_in_json_is_short_enough_for_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    frames = "first frame\n" + "é" * 20_000 + "\nlast line"
    print_failure("failed", who="shout/1", source="request a", frames=frames, as_json=True)
    line = capsys.readouterr().err.removesuffix("\n")
    assert len(line) < 16 << 10, "the front would cut it, and a piece of it is not JSON"
    traceback = json.loads(line)["traceback"]
    assert traceback.startswith("first frame\n") and traceback.endswith("\nlast line") and "\n…\n" in traceback


def test_no_text_of_an_exception_looks_like_a_line_of_the_log_or_fills_the_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failures = FailureLog("model/0")
    for text in ("a\n2026-01-01T00:00:00Z INFO forged\x1b[2J", "x" * 1_000_000):
        try:
            raise ValueError(text)
        except ValueError as error:
            failures.log("predict", error)
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\\x1b[2J" in said
    assert not [line for line in said.splitlines() if line.startswith("2026-01-01")]
    assert len(said) < 60_000


def test_a_wrong_number_of_answers_is_told_without_frames_of_jitney(capsys: pytest.CaptureFixture[str]) -> None:
    def predict(texts: list[str]) -> list[str]:
        return [*texts, "more"]

    one(predict, ["a"], tag=TAG_TEXT)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "predict returned 2 answers for a batch of 1" in said


def test_an_answer_that_cannot_be_encoded_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def predict(texts: list[str]) -> list[Any]:
        return [object() for _ in texts]

    [outcome, _] = one(predict, ["a", "b"], tag=TAG_TEXT)
    assert outcome.reason == "invalid_output"
    said = capsys.readouterr().err
    assert "an answer of predict failed" in said
    assert said.count("cannot be encoded") >= 1
