"""The exception tree: one class per outcome, its drawing, and that exceptions cross processes."""

import inspect
import pickle
import re
import subprocess
import sys

import jitney
import pytest
from jitney import errors
from jitney.errors import BY_REASON, PROTOCOL_ONLY, InvalidInput, MalformedBody, RequestError


def classes() -> list[type[errors.JitneyError]]:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, errors.JitneyError)]


def test_the_drawing_shows_every_class_under_its_base() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([│ ├└─]*)([A-Z]\w+)(?:\s|$)", line)
        if found is None:
            continue
        depth = len(found[1]) // 3
        path[depth:] = [found[2]]
        drawn[found[2]] = path[depth - 1] if depth else "Exception"
    drawn.pop("The", None)
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in classes()}


def test_every_reason_has_one_class() -> None:
    assert all(kind.reason == reason for reason, kind in BY_REASON.items())
    leaves = [kind for kind in classes() if issubclass(kind, RequestError)]
    assert {kind.reason for kind in leaves} == set(BY_REASON)


def test_every_class_is_exported() -> None:
    assert {kind.__name__ for kind in classes()} <= set(jitney.__all__)
    assert all(hasattr(jitney, name) for name in jitney.__all__)


def test_an_invalid_input_has_a_status_of_the_client_and_crosses_processes() -> None:
    with pytest.raises(ValueError, match="400 to 499, not 500"):
        InvalidInput("x", status=500)
    for error in (InvalidInput("x", status=413, field="$.a"), MalformedBody("y")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (copy.message, copy.status, copy.field) == (error.message, error.status, error.field)
    assert pickle.loads(pickle.dumps(jitney.QueueFull("full"))).message == "full"


@pytest.mark.parametrize("kind", [jitney.Overloaded, jitney.Unavailable])
def test_a_time_to_come_back_is_a_number_of_seconds(kind: type[jitney.Overloaded] | type[jitney.Unavailable]) -> None:
    assert pickle.loads(pickle.dumps(kind("x", retry_after_s=3))).retry_after_s == 3
    assert kind("x", retry_after_s=-0.01).retry_after_s == 0
    with pytest.raises(ValueError, match="retry_after_s is a number of seconds, not inf"):
        kind("x", retry_after_s=float("inf"))


def test_reasons_are_those_of_the_table_of_outcomes() -> None:
    core = pytest.importorskip("jitney._core", reason="jitney._core is not built")
    reasons = {row[0] for row in core.outcomes()}
    assert reasons == set(BY_REASON) | PROTOCOL_ONLY | {"ok"}


def test_a_status_that_is_asked_for_on_a_thread_which_ends_leaves_a_thread_that_does_not() -> None:
    # `print` writes the text and the end of the line separately, and two threads write here at the same time.
    program = """
import sys
import threading
from jitney.errors import QueueFull

threading.Thread(target=lambda: sys.stdout.write(f"{QueueFull('full').http_status}\\n")).start()
while threading.active_count() > 1 and "jitney-loaded" not in {one.name for one in threading.enumerate()}:
    pass
sys.stdout.write(f"{'jitney-loaded' in {one.name for one in threading.enumerate()}}\\n")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(ran.stdout.split()) == ["429", "True"]
