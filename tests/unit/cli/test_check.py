"""`jitney check` shows inputs and outputs, and fails when a model does not work."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jitney.cli.main import main
from jitney.config.options import deployment_options

NUMBERS = itertools.count()

MODEL = """
import numpy as np
import jitney

@jitney.deployment(max_batch_size=4, examples=["one", "three"])
class Length:
    \"\"\"Counts letters.\"\"\"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def predict(self, texts: list[str]) -> np.ndarray:
        return np.array([[len(text) * self.scale] for text in texts], np.float32)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(source: str, *arguments: str) -> int:
    path = Path(f"check_target_{next(NUMBERS)}.py")
    path.write_text(source)
    return main(["check", str(path), *arguments])


def test_options_of_the_only_deployment_need_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL, "--max-batch-size", "6") == 0
    assert "6 (--max-batch-size)" in capsys.readouterr().out
    two = MODEL + MODEL.replace("class Length", "class Other")
    assert check(two, "--max-batch-size", "6") == 1
    assert "write --set length.max_batch_size=6" in capsys.readouterr().err


def test_a_good_model_is_shown_with_its_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitney.cli.check.command.MEASURABLE_S", 0)
    assert check(MODEL, "--set", "length.max_batch_size=8", "--set", "length.init.scale=2") == 0
    said = capsys.readouterr().out
    for expected in (
        "Counts letters.",
        "8 (--set length.max_batch_size)",
        "in   str 'three'",
        "out  float32 (1,) [10]",
        "a batch of 8",
        "first call",
        "loaded in",
        "init.scale      '2'",
        f"{len(deployment_options()) - 1} other options have their default",
    ):
        assert expected in said
    assert "max_queued_items" not in said
    assert "warning" not in said


@pytest.mark.filterwarnings("default::UserWarning")
def test_hooks_of_other_servers_are_warned_of_as_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    hook = MODEL.replace(
        "    def predict", "    def decode_request(self, request):\n        return request\n\n    def predict"
    )
    assert check(hook) == 0
    said = capsys.readouterr()
    assert re.search(
        r"^warning: Length\.decode_request is never called: .*$",
        said.out,
        re.MULTILINE,
    )
    assert "UserWarning" not in said.out + said.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("self.scale = scale", "raise OSError('no weights')", "OSError: no weights"),
        ("return np", "raise KeyError('x')\n        return np", "KeyError: 'x'"),
        ("for text in texts]", "for text in texts + ['more']]", "too many"),
        ('["one", "three"]', '["one", 3]', "is not what predict takes"),
        ("texts: list[str]", "texts: str", "list[str]"),
        ("import numpy", "import no_such_thing", "no_such_thing"),
    ],
)
def test_what_does_not_work_is_said_and_fails(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(MODEL.replace(old, new)) == 1
    assert message in capsys.readouterr().err


def test_an_example_that_a_method_does_not_take_names_the_method(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
import jitney

@jitney.deployment
class Both:
    @jitney.method(examples=[7])
    def count(self, texts: list[str]) -> list[int]: ...
"""
    assert check(source) == 1
    assert "the example int 7 is not what count takes" in capsys.readouterr().err


def test_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace("scale:", "api_key: str, scale:"), "--set", "length.init.api_key=hunter2") == 0
    said = capsys.readouterr().out
    assert "init.api_key    '***'" in said
    assert "hunter2" not in said


def test_every_deployment_is_checked_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    broken = MODEL.replace("for text in texts]", "for text in texts * 2]")
    good = """
@jitney.deployment(examples=["a"])
def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]
"""
    assert check(broken + good) == 1
    said = capsys.readouterr()
    assert "jitney: length: predict returned 2 answers for a batch of 1" in said.err
    assert "out  text A" in said.out


def test_an_option_for_a_deployment_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL, "--set", "lenght.max_batch_size=8") == 1
    assert "did you mean `length`" in capsys.readouterr().err


def test_empty_arrays_are_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace("np.array(", "np.zeros((len(texts), 0, 4), np.float32) if True else np.array(")) == 0
    assert "out  float32 (0, 4) []" in capsys.readouterr().out


def test_answers_that_depend_on_their_batch_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace("self.scale]", "len(texts)]")) == 0
    assert "warning: 4 of 4 answers in a batch differ from those given alone" in capsys.readouterr().out


def test_an_example_that_gets_an_error_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    source = MODEL.replace("-> np.ndarray", "-> list[str | Exception]")
    source = source.replace("return np", "return [ValueError('never') for text in texts]\n        return np")
    assert check(source) == 1
    assert "model_failed: ValueError: never" in capsys.readouterr().out


def test_without_examples_it_warns_that_nothing_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace(', examples=["one", "three"]', "")) == 0
    assert "warning: no examples: nothing was run; add examples=[…]" in capsys.readouterr().out


def test_a_profile_without_examples_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace(', examples=["one", "three"]', ""), "--profile") == 1
    assert "length: there is nothing to measure: --profile runs the examples" in capsys.readouterr().err


def test_a_call_too_short_to_measure_has_no_line_of_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitney.cli.check.command.MEASURABLE_S", 1000)
    assert check(MODEL) == 0
    assert "times as many" not in capsys.readouterr().out


def test_a_full_batch_that_does_not_fit_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    full = MODEL.replace("return np", "if len(texts) > 2: raise MemoryError\n        return np")
    assert check(full, "--profile") == 0
    said = capsys.readouterr().out
    told = "a batch of 4 is too much for the memory of the device; the largest that ran: 2; batches that do not fit"
    assert f"{told} are computed in parts" in said.replace("warning: ", "")
    assert said.count(told) == 2
    assert "in batches of" in said
    assert check(full, "--set", "length.retry=false") == 0
    assert f"{told} fail, because of retry=False" in capsys.readouterr().out


def test_an_item_that_does_not_fit_alone_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace("return np", "raise MemoryError('9 GiB')\n        return np")) == 1
    assert "length: one item alone is too much for the memory of the device (MemoryError: 9 GiB)" in (
        capsys.readouterr().err
    )


def test_a_profile_is_of_the_first_example_as_the_warm_up_is(capsys: pytest.CaptureFixture[str]) -> None:
    source = MODEL.replace("return np", "print('batch', len(texts), sorted(set(texts)))\n        return np")
    assert check(source, "--profile") == 0
    said = capsys.readouterr().out
    assert "runs of each size of the first example, str 'one'" in said
    assert said.count("batch 2 ['one']") == 3
    assert "batch 2 ['one', 'three']" not in said


def test_a_profile_of_one_example_does_not_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MODEL.replace('"one", "three"', '"one"'), "--profile") == 0
    assert "runs of each size\n" in capsys.readouterr().out


def test_a_model_is_loaded_on_its_first_device_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    source = MODEL.replace("max_batch_size=4,", 'max_batch_size=4, devices=["cuda:1", "cuda:2"],')
    source = source.replace("self.scale = scale", "self.scale = print('on', jitney.context().device.upper()) or scale")
    assert check(source) == 0
    assert "on CUDA:1" in capsys.readouterr().out
    assert check(source, "--set", "length.devices=mps") == 0
    assert "on MPS" in capsys.readouterr().out
    assert check(source, "--device", "cpu") == 0
    assert "on CPU" in capsys.readouterr().out


def test_a_file_with_relative_imports_is_told_its_module(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "relatives" / "inner"
    inner.mkdir(parents=True)
    (inner / "serve.py").write_text("from .words import word\n")
    assert main(["check", "relatives/inner/serve.py:Model"]) == 1
    assert capsys.readouterr().err.endswith("serve it as a module: relatives.inner.serve:Model\n")
    monkeypatch.chdir(inner)
    assert main(["check", "serve.py"]) == 1
    assert capsys.readouterr().err.endswith(f"serve it as a module: inner.serve, in {folder / 'relatives'}\n")


MANY = """
import jitney

@jitney.deployment(examples=["x" * 100] * 2000)
def many(texts: list[str]) -> list[str]:
    return texts

@jitney.deployment(examples=["x"])
def pipe(texts: list[str]) -> list[str]:
    raise BrokenPipeError(32, "a pipe of the model's")
"""


def test_a_reader_that_has_enough_is_no_failure_of_the_model(folder: Path) -> None:
    (folder / "many.py").write_text(MANY)
    command = [sys.executable, "-m", "jitney", "check", "many.py:many"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not process.stdout.readline().startswith(b"  in "):
            assert process.poll() is None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_pipe_of_the_models_own_is_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(MANY.replace("* 2000", "* 2")) == 1
    assert "pipe does not work: BrokenPipeError" in capsys.readouterr().err


def test_threads_that_a_model_leaves_behind_do_not_hold_up_the_end(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import threading\nimport time\nimport jitney\n\nthreading.Thread(target=time.sleep, args=(600,)).start()\n\n"
        "@jitney.deployment(examples=['a'])\ndef busy(texts: list[str]) -> list[str]:\n    return texts\n"
    )
    command = [sys.executable, "-m", "jitney", "check", str(tmp_path / "busy.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0 and "busy" in ran.stdout, ran.stderr


def test_exit_handlers_that_wait_for_ever_do_not_hold_up_the_end() -> None:
    program = (
        "import atexit, sys, time\nfrom jitney.worker import process\nprocess.LEAVES_WITHIN_S = 0.2\n"
        "atexit.register(time.sleep, 600)\nsys.stdout.close()\nprocess.end_process(7)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 7


HOOKS = """
import jitney

@jitney.deployment(examples=["a"])
class Hooked:
    def predict(self, texts: list[str]) -> list[str]:
        return texts

    def check(self) -> bool:
        print("checks")
        return True

    def close(self) -> None:
        print("closes")
"""


def test_the_models_own_check_and_close_are_called_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(HOOKS) == 0
    said = capsys.readouterr().out
    assert (
        said.index("out  text a") < said.index("checks") < said.index("check() returned after") < said.index("closes")
    )
    assert "close() returned after" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return True", "return False", "hooked: the model's check returned False"),
        ("return True", "raise OSError('no device')", "hooked: the model's check raised OSError: no device"),
        ('print("closes")', "raise OSError('no room')", "close() of hooked failed: OSError: no room"),
        ("        return texts", "        raise KeyError('x')", "hooked does not work: KeyError: 'x'"),
    ],
)
def test_a_check_or_close_that_fails_fails_the_check(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(HOOKS.replace(old, new)) == 1
    said = capsys.readouterr()
    assert f"jitney: {message}\n" in said.err
    assert ("raise" in new) == ("Traceback" in said.err)
    assert "closes" in said.out or "no room" in message


def test_the_event_loop_of_an_async_model_is_closed_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    source = HOOKS[: HOOKS.index("    def check")].replace("def predict", "async def predict")
    assert check(source) == 0
    assert "close()" not in capsys.readouterr().out


SPEAKS = """
import asyncio
from collections.abc import AsyncIterator
import jitney

@jitney.deployment(batched=False, examples=["ab"])
class Speaks:
    async def predict(self, text: str) -> AsyncIterator[jitney.Step[str]]:
        for letter in text:
            await asyncio.sleep(0)
            yield letter.upper()
        yield jitney.End()
        raise ValueError("it is closed by then")
"""


def test_an_asynchronous_generator_is_checked_by_its_whole_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(SPEAKS) == 0
    assert "out  text AB" in capsys.readouterr().out
    assert check(SPEAKS.replace("letter.upper()", "7")) == 1
    assert "the answer: predict is annotated to yield parts of type str, but one part is 7, of type int" in (
        capsys.readouterr().err
    )
    endless = SPEAKS.replace("for letter in text:", "for letter in itertools.cycle(text):")
    assert check("import itertools" + endless) == 1
    said = capsys.readouterr().err
    assert "speaks: after 10,000 steps in" in said
    assert "the answer has not ended: it has 10,000 parts, the last one is 'B'" in said
    assert check(SPEAKS.replace("batched=False, ", "")) == 1
    assert "it takes one item, so say batched=False" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("/v1/models", 'hooked: route "/v1/models" belongs to the server itself; choose another path'),
        ("/metrics", "belongs to the server itself"),
        ("/a/batch", "ends in /batch"),
        ("/other", 'hooked: route "/other" leads to other already; give hooked another route='),
    ],
)
def test_a_route_that_the_server_refuses_is_refused_before_anything_is_loaded(
    route: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = HOOKS.replace("examples=", f"route={route!r}, examples=")
    source += "\n    def __init__(self) -> None:\n        print('loads')\n"
    source += "\n@jitney.deployment\ndef other(texts: list[str]) -> list[str]:\n    return texts\n"
    assert check(source) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert "loads" not in said.out


def test_the_parts_of_an_answer_are_shown_with_their_times(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
from collections.abc import Iterator
import jitney

@jitney.deployment(examples=["abcdefgh", "xy"])
def letters(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
    left = [list(text) for text in texts]
    while any(left):
        yield [rest.pop(0) if rest else jitney.End() for rest in left]
"""
    assert check(source) == 0
    out = capsys.readouterr().out
    lines = [re.sub(r"[\d.]+ (µs|ms|s)", "TIME", line.strip()) for line in out.splitlines()]
    begin = lines.index("in   str 'abcdefgh'")
    assert lines[begin + 1 : begin + 6] == [f"part str '{letter}' after TIME" for letter in "abcde"]
    assert lines[begin + 6] == "and 3 more, the last after TIME; the longest gap TIME"
    assert lines[begin + 8 : begin + 11] == ["in   str 'xy'", "part str 'x' after TIME", "part str 'y' after TIME"]


STEPS = """
import jitney

@jitney.deployment(examples=["one"])
class Steps:
    def admit(self, texts: list[str]) -> list[str]:
        return texts

    def step(self, texts: list[str]) -> list[jitney.Step[str]]:
        return [jitney.End(text) for text in texts]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return texts", "return [*texts, 'more']", "admit returned 2 states for 1 items"),
        (
            "return [jitney.End(text) for text in texts]",
            "return None",
            "step returned a NoneType; expected a list of 1",
        ),
    ],
)
def test_steps_of_a_wrong_number_are_named_as_the_server_names_them(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(STEPS) == 0
    assert check(STEPS.replace(old, new)) == 1
    assert message in capsys.readouterr().err


def test_an_image_without_an_answer_is_told_what_the_end_needs(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
from collections.abc import Iterator
import jitney

@jitney.deployment(batched=False, examples=["one"])
def paint(text: str) -> Iterator[jitney.Step[jitney.Image, jitney.Image]]:
    yield jitney.End()
"""
    assert check(source) == 1
    assert "jitney.End needs `answer=`" in capsys.readouterr().err


GENERATOR = """
from collections.abc import Iterator
from typing import Any
import jitney

@jitney.deployment(batched=False, examples=["one"])
def parts(text: str) -> Iterator[jitney.Step[PART]]:
    yield from SAYS
"""


@pytest.mark.parametrize(
    ("part", "says", "message"),
    [
        ("str", "['a']\n    return 'whole'", "its `return 'whole'` reaches no client; yield jitney.End(answer=…)"),
        ("str", "['a', jitney.End]", "of type type; write jitney.End()"),
        ("str, int", "['a']", "got `str`; without jitney.End(answer=…) the answer is the parts put together"),
        ("int, str", "[1]", "but returned list for this one; without jitney.End(answer=…) the answer is the parts"),
    ],
)
def test_a_generator_that_ends_in_a_wrong_way_is_told_how_to_end(
    part: str, says: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(GENERATOR.replace("PART", part).replace("SAYS", says)) == 1
    assert message in capsys.readouterr().err


def test_an_answer_that_is_annotated_as_object_may_be_anything() -> None:
    assert check(GENERATOR.replace("PART", "object").replace("SAYS", "['a', 1, b'c', [2.5]]")) == 0


def test_parts_of_bytes_are_shown_with_their_length_and_type(capsys: pytest.CaptureFixture[str]) -> None:
    says = "[bytes(900), jitney.Response(bytes(800), 'audio/wav'), jitney.Response({'a': 1})]"
    assert check(GENERATOR.replace("PART", "Any").replace("SAYS", says)) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    shown = [line.rpartition(" after ")[0] for line in lines if line.startswith("part ")]
    zeros = repr(bytes(12)) + "…"
    assert shown == [
        f"part 900 bytes {zeros}",
        f"part Response audio/wav, 800 bytes {zeros}",
        "part Response {a: int 1}",
    ]
