"""A worker's life, from its specification to the loop, seen by what it sends to the front."""

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from fake_link import FakeBatch, FakeLink, FakeResults
from jitney.config.layers import Overrides
from jitney.config.reading import read_overrides
from jitney.context import cpu_threads, leave
from jitney.errors import JitneyError
from jitney.worker.process import SPEC_VARIABLE, THREAD_VARIABLES, Spec, Worker, set_threads

NUMBERS = itertools.count()

GOOD = """
import jitney

CALLS = []

@jitney.deployment(max_batch_size=4, examples=["one", "two"])
class Shout:
    def __init__(self, mark: str = "!") -> None:
        self.mark = mark
        self.where = jitney.context()

    def predict(self, texts: list[str]) -> list[str]:
        CALLS.append(list(texts))
        return [f"{text.upper()}{self.mark} {self.where.replica} {self.where.device}" for text in texts]

@jitney.deployment
def whisper(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]
"""


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    leave()


def target(folder: Path, source: str) -> str:
    path = folder / f"worker_target_{next(NUMBERS)}.py"
    path.write_text(source)
    return str(path)


def spec(target: str, *sets: str) -> Spec:
    overrides = read_overrides(None, {}, sets)
    return Spec("unix:/x", "t", 1, target, overrides, 3, 1)


def assign(link: FakeLink, deployment: str = "shout", most_items: int | None = None) -> FakeLink:
    """Let the front say which replica it is to be."""
    place = {"deployment": deployment, "replica": 2, "device": "cpu", "cpu_threads": 3, "most_items": most_items}
    link.messages.append(("assign", json.dumps(place).encode()))
    return link


def live(given: Spec, link: FakeLink) -> int:
    if not link.messages:
        assign(link)
    return Worker(cast("Any", link), given, cast("Any", FakeResults)).run()


def sent(link: FakeLink) -> list[tuple[str, Any]]:
    return [(kind, json.loads(body)) for kind, body in link.sent]


def told(link: FakeLink) -> list[str]:
    return [body["stage"] if kind == "progress" else kind for kind, body in sent(link)]


def failure(link: FakeLink) -> dict[str, str]:
    kind, body = sent(link)[-1]
    assert kind == "failed"
    return body


@pytest.mark.parametrize("is_first_loaded", [False, True])
def test_a_failed_import_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_first_loaded: bool
) -> None:
    given = replace(spec(target(tmp_path, "raise OSError('no disk')")), is_further=True)
    link = FakeLink()
    if is_first_loaded:
        assign(link)
    else:
        link.messages.append(("shutdown", b""))
    assert live(given, link) == int(is_first_loaded)
    assert ("failed" in told(link)) == is_first_loaded
    assert ("no disk" in capsys.readouterr().err) == is_first_loaded


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_worker_of_another_machine_keeps_its_model_when_its_link_is_lost(tmp_path: Path, *, is_remote: bool) -> None:
    given = replace(spec(target(tmp_path, GOOD)), id="w1" if is_remote else "", options_hash="o")
    link = FakeLink()
    assert live(given, link) == 0
    loaded = {"target": given.target, "deployment": "shout", "replica": 2, "options_hash": "o"}
    assert [json.loads(body) for body in link.loaded] == ([loaded] if is_remote else [])


def test_a_worker_imports_loads_warms_up_and_serves(tmp_path: Path) -> None:
    link = FakeLink([FakeBatch(1, ["a", "b"])])
    assert live(spec(target(tmp_path, GOOD), "shout.init.mark=?"), link) == 0
    assert told(link) == ["importing", "manifest", "loading", "warming", "ready"]
    assert [outcome.value[1] for outcome in link.outcomes[1]] == [b"A? 2 cpu", b"B? 2 cpu"]
    assert cpu_threads() == 3
    ready = sent(link)[-1][1]
    assert ready["load_s"] >= 0
    assert ready["warm_s"] >= 0


def test_the_manifest_names_every_deployment_of_the_target(tmp_path: Path) -> None:
    link = FakeLink()
    place = target(tmp_path, GOOD)
    live(spec(place), link)
    manifest = dict(sent(link))["manifest"]
    assert manifest["target"] == place
    assert [deployment["name"] for deployment in manifest["deployments"]] == ["shout", "whisper"]


def test_warm_up_is_one_item_then_a_full_batch_and_then_each_size_twice(tmp_path: Path) -> None:
    place, link = target(tmp_path, GOOD), FakeLink()
    live(spec(place), link)
    calls = sys.modules[Path(place).stem].CALLS
    assert [len(call) for call in calls] == [1, 1, 4, 2, 2, 4]
    assert [size for size, _ in sent(link)[-1][1]["profile"][""]] == [1, 2, 4]


METHODS = """
import jitney

@jitney.deployment(max_batch_size=2)
class Both:
    def predict(self, texts: list[str]) -> list[str]:
        return texts

    @jitney.method(examples=["a"])
    def count(self, texts: list[str]) -> list[int]:
        if "bad" in texts:
            raise ValueError("counted wrong")
        if "few" in texts:
            return []
        return [len(text) for text in texts]

    @jitney.method(examples=["a"])
    def where(self, texts: list[str]) -> list[str]:
        return [jitney.context().method for _ in texts]
"""


def test_each_method_is_measured(tmp_path: Path) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, METHODS)), assign(link, "both")) == 0
    profile = sent(link)[-1][1]["profile"]
    assert {name: [size for size, _ in curve] for name, curve in profile.items()} == {
        "predict": [],
        "count": [1, 2],
        "where": [1, 2],
    }


def test_the_log_and_the_context_name_the_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink([FakeBatch(1, ["bad"], method="count"), FakeBatch(2, ["a"], method="where")])
    link.batches.append(FakeBatch(3, ["few"], method="count"))
    assert live(spec(target(tmp_path, METHODS)), assign(link, "both")) == 0
    assert "both/2: count failed" in capsys.readouterr().err
    assert link.outcomes[3][0].detail.startswith("count returned 0 answers for a batch of 1")
    assert [outcome.value[1] for outcome in link.outcomes[2]] == [b"where"]


def test_an_example_that_a_method_does_not_take_names_the_method(tmp_path: Path) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, METHODS.replace('"a"', "7"))), assign(link, "both")) == 1
    assert "the example 7 is not what count takes" in failure(link)["error"]


FULL = (
    GOOD.replace(
        "CALLS.append(list(texts))",
        """CALLS.append(list(texts))
        if len(texts) > ROOM:
            held = Held()
            raise MemoryError""",
    )
    + """
class Held:
    LIVE = 0
    def __init__(self): Held.LIVE += 1
    def __del__(self): Held.LIVE -= 1
"""
)


@pytest.mark.parametrize(("room", "measured"), [(2, [1, 2]), (1, [1])])
def test_batches_that_do_not_fit_are_left_out_of_the_warm_up(
    room: int, measured: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, link = target(tmp_path, FULL.replace("ROOM", str(room))), FakeLink()
    assert live(spec(place), link) == 0
    assert [size for size, _ in sent(link)[-1][1]["profile"][""]] == measured
    said = capsys.readouterr().err
    assert f"WARN shout/2: a batch of 4 is too much for the memory of the device; the largest that ran: {room}" in said
    assert sys.modules[Path(place).stem].Held.LIVE == 0


ENDLESS = """
from collections.abc import Iterator
import jitney

@jitney.deployment(max_batch_size=4, examples=["a"])
def endless(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
    while True:
        yield texts
"""


def test_an_answer_that_does_not_end_cuts_the_warm_up_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = assign(FakeLink(), "endless")
    assert live(spec(target(tmp_path, ENDLESS)), link) == 0
    assert (told(link)[-1], sent(link)[-1][1]["profile"]) == ("ready", {"": []})
    said = capsys.readouterr().err
    assert "WARN endless/2: the warm-up was cut short: after 10,000 steps in" in said
    assert "the answer has not ended: it has 10,000 parts, the last one is 'a'" in said


SLOW = """
import time
from collections.abc import Iterator
import jitney

STEPS = []

@jitney.deployment(batched=False, examples=["a"], stream_timeout_s=0.5, batch_timeout_s=0.2)
def endless(text: str) -> Iterator[jitney.Step[str]]:
    if text == "bad":
        raise ValueError("a bad one")
    STEPS.append([])
    while True:
        time.sleep(0.01)
        STEPS[-1].append(text)
        yield text
"""


def test_the_test_of_a_model_is_no_hang(tmp_path: Path) -> None:
    """The front takes silence of `batch_timeout_s` for a hang, and the test of a model is silent."""
    link, place = (
        assign(FakeLink([FakeBatch(number, ["bad"]) for number in range(2)]), "endless"),
        target(tmp_path, SLOW),
    )
    assert live(spec(place), link) == 0
    _, test = sys.modules[Path(place).stem].STEPS
    assert 0 < len(test) <= 10


def test_a_part_of_a_wrong_type_ends_the_load(tmp_path: Path) -> None:
    link = assign(FakeLink(), "endless")
    assert live(spec(target(tmp_path, ENDLESS.replace("yield texts", "yield [7]"))), link) == 1
    assert failure(link)["stage"] == "warming"
    assert "parts of type str, but one part is 7, of type int" in failure(link)["error"]


def test_no_more_is_tried_than_fits_into_a_batch_by_its_cost(tmp_path: Path) -> None:
    link = assign(FakeLink(), most_items=3)
    assert live(spec(target(tmp_path, GOOD)), link) == 0
    assert [size for size, _ in sent(link)[-1][1]["profile"][""]] == [1, 2, 3]


def test_a_size_that_fits_only_once_is_left_out(tmp_path: Path) -> None:
    source = GOOD.replace(
        "CALLS.append(list(texts))",
        """CALLS.append(list(texts))
        if len(CALLS) == 6:
            raise MemoryError""",
    )
    link = FakeLink()
    live(spec(target(tmp_path, source)), link)
    assert [size for size, _ in sent(link)[-1][1]["profile"][""]] == [1, 2]


def test_one_item_that_does_not_fit_ends_the_load(tmp_path: Path) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, FULL.replace("ROOM", "0"))), link) == 1
    assert failure(link)["stage"] == "warming"
    assert "one item alone is too much for the memory of the device (MemoryError)" in failure(link)["error"]


def test_a_scout_waits_to_be_told_which_replica_it_is(tmp_path: Path) -> None:
    assigned = {"deployment": "whisper", "replica": 0, "device": None, "cpu_threads": 2}
    link = FakeLink([FakeBatch(1, ["A"])], [("assign", json.dumps(assigned).encode())])
    assert live(spec(target(tmp_path, GOOD)), link) == 0
    assert told(link) == ["importing", "manifest", "loading", "warming", "ready"]
    assert link.outcomes[1][0].value[1] == b"a"
    assert cpu_threads() == 2


def test_a_scout_that_is_not_needed_ends_well(tmp_path: Path) -> None:
    link = FakeLink(messages=[("shutdown", b"{}")])
    assert live(spec(target(tmp_path, GOOD)), link) == 0
    assert told(link) == ["importing", "manifest"]


@pytest.mark.parametrize(
    ("source", "stage", "error"),
    [
        ("import no_such_module_anywhere\n", "importing", "no_such_module_anywhere"),
        ("raise SystemExit(0)\n", "importing", "exits while being imported"),
        ("def predict(:\n", "importing", "SyntaxError"),
        ("x = 1\n", "importing", "no deployments"),
        (GOOD.replace("self.mark = mark", "raise OSError('no weights')"), "loading", "OSError: no weights"),
        (GOOD.replace("CALLS.append(list(texts))", "raise SystemExit(3)"), "warming", "SystemExit: 3"),
        (GOOD.replace("CALLS.append(list(texts))", "return texts * 2"), "warming", "expected 1"),
    ],
)
def test_what_goes_wrong_before_ready_is_told_and_printed(
    source: str, stage: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, source)), link) == 1
    body = failure(link)
    assert body["stage"] == stage
    assert error in body["error"]
    assert "\n" not in body["error"]
    printed = capsys.readouterr().err.strip()
    if "Traceback" in body["traceback"] or "SyntaxError" in body["traceback"]:
        assert printed == body["traceback"].strip()
    else:
        assert printed == ""  # jitney's own refusal: the front says it, once
    assert "jitney/worker/" not in body["traceback"]


def test_a_deployment_that_has_gone_is_named(tmp_path: Path) -> None:
    link = assign(FakeLink(), "gone")
    assert live(spec(target(tmp_path, GOOD)), link) == 1
    assert "'gone'" in failure(link)["error"]


def test_the_specification_is_taken_out_of_the_environment() -> None:
    given = {
        "address": "unix:/x", "token": "ab", "worker": 7, "target": "m.py", "cpu_threads": 2, "parent": 1,
        "overrides": json.loads(read_overrides(None, {}, ["m.max_batch_size=3"]).to_json()),
    }  # fmt: skip
    environ = {SPEC_VARIABLE: json.dumps(given), "OTHER": "stays"}
    taken = Spec.take(environ)
    assert environ == {"OTHER": "stays"}
    assert (taken.worker, taken.token, taken.cpu_threads) == (7, "ab", 2)
    assert isinstance(taken.overrides, Overrides)
    assert taken.overrides.names().keys() == {"m"}


def test_a_worker_started_by_hand_says_what_it_is() -> None:
    with pytest.raises(JitneyError, match="jitney serve"):
        Spec.take({})


def test_thread_variables_never_override_the_users_own() -> None:
    environ = {"OMP_NUM_THREADS": "11"}
    set_threads(3, environ)
    assert environ.pop("OMP_NUM_THREADS") == "11"
    assert environ == dict.fromkeys(set(THREAD_VARIABLES) - {"OMP_NUM_THREADS"}, "3")


def test_a_wrong_option_is_named_with_the_line_that_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = FakeLink()
    source = GOOD.replace("max_batch_size=4", "max_bach_size=4")
    place = target(tmp_path, source)
    assert live(spec(place), link) == 1
    said = failure(link)["error"]
    assert said.startswith("deployment `shout` (decorator): there is no option `max_bach_size`")
    assert said.endswith(f"({Path(place).name}, line 6)")
    assert capsys.readouterr().err == ""  # the front says it, once


def test_what_is_printed_follows_the_format_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = target(tmp_path, GOOD.replace("self.mark = mark", "raise OSError('no weights')"))
    assert Worker(cast("Any", assign(FakeLink())), spec(place), cast("Any", FakeResults), as_json=True).run() == 1
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert line["level"] == "ERROR"
    assert line["message"].endswith("OSError: no weights")
    assert "raise OSError" in line["traceback"]


@pytest.mark.parametrize("call", ["jitney.Tensor('float31')", "jitney.Image('cat.png')"])
def test_what_jitney_refuses_is_shown_without_its_own_frames(
    call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, GOOD.replace("CALLS = []", f"CALLS = [{call}]"))), link) == 1
    printed = capsys.readouterr().err
    assert call in printed
    assert "jitney/types/" not in printed
    assert "<string>" not in printed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["one", "two"]', "[3]", "the example 3 is not what predict takes: $: Expected `str`, got `int`"),
        ('["one", "two"]', '["one", 3]', "the example 3 is not what predict takes"),
        ("-> list[str]", "-> list[int]", "Expected `int`, got `str`"),
    ],
)
def test_an_example_of_another_type_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    link = FakeLink()
    assert live(spec(target(tmp_path, GOOD.replace(old, new, 1))), link) == 1
    assert message in failure(link)["error"]
    assert failure(link)["stage"] == "warming"


CLOSING = """
import jitney

CALLS = []

@jitney.deployment
class Closing:
    def predict(self, texts: list[str]) -> list[str]:
        if texts == ["break"]:
            raise jitney.WorkerBroken("no device")
        CALLS.append("predict")
        return texts

    def close(self) -> None:
        CALLS.append("close")
        raise OSError("the file is closed")
"""


@pytest.mark.parametrize(
    ("items", "code", "calls"), [(["a"], 0, ["predict", "close"]), (["break"], 1, [])], ids=["in order", "broken"]
)
def test_close_is_called_once_and_only_when_the_worker_ends_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], items: list[str], code: int, calls: list[str]
) -> None:
    link = assign(FakeLink([FakeBatch(1, items)]), "closing")
    handlers: list[Any] = []
    place = target(tmp_path, CLOSING)
    worker = Worker(cast("Any", link), spec(place), cast("Any", FakeResults), at_exit=handlers.append)
    assert worker.run() == code
    for handler in handlers:
        handler()
    assert calls == sys.modules[Path(place).stem].CALLS
    assert ("close failed" in capsys.readouterr().err) is (code == 0)


CHECKED = """
import jitney

CALLS = []

@jitney.deployment(check_interval_s=1e-9)
class Checked:
    def predict(self, texts: list[str]) -> list[str]:
        CALLS.append("predict")
        return texts

    def check(self) -> bool | None:
        CALLS.append("check")
        if CALLS.count("check") == 2:
            FAIL
"""


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("raise OSError('no connection')", "the model's check raised OSError: no connection"),
        ("return False", "the model's check returned False"),
    ],
)
def test_a_check_that_fails_while_no_batch_runs_ends_the_worker(tmp_path: Path, does: str, says: str) -> None:
    idle = TimeoutError()
    link = assign(FakeLink([FakeBatch(1, ["a"]), idle, FakeBatch(2, ["b"]), idle]), "checked")
    place = target(tmp_path, CHECKED.replace("FAIL", does))
    assert live(spec(place), link) == 1
    assert sys.modules[Path(place).stem].CALLS == ["predict", "check", "predict", "check"]
    assert failure(link)["stage"] == "serving"
    assert failure(link)["error"] == says


def test_a_check_that_needs_arguments_is_the_models_own(tmp_path: Path) -> None:
    link = assign(FakeLink([FakeBatch(1, ["a"]), FakeBatch(2, ["b"])]), "checked")
    place = target(tmp_path, CHECKED.replace("def check(self)", "def check(self, text)"))
    assert live(spec(place), link) == 0
    assert sys.modules[Path(place).stem].CALLS == ["predict", "predict"]


def test_an_async_close_without_an_async_predict_is_refused(tmp_path: Path) -> None:
    link = FakeLink()
    source = CLOSING.replace("def close", "async def close")
    assert live(spec(target(tmp_path, source)), link) == 1
    assert "close is `async def`" in failure(link)["error"]
