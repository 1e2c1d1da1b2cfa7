"""What models print has the name of its replica on each line, and lines of two workers are never mixed."""

import json
import re
from typing import Any

import pytest
from harness import Serve, Server, until


def lines_of(server: Server, stream: str) -> list[str]:
    return (server.stdout() if stream == "stdout" else server.log()).split("\n")


def test_each_line_has_the_name_of_its_replica(serve: Serve) -> None:
    server = serve("printing.py")
    out = server.stdout().splitlines()
    assert [line for line in out if line.endswith("printing.py | imported")], out
    assert "printing/0 | loaded" in out
    for text in ("pieces", "binary", "long", "progress", "unfinished"):
        assert server.post("/printing", text).status == 200
    until(lambda: "printing/0 | no end" in lines_of(server, "stderr"), "a line without an end is written")
    out = server.stdout().splitlines()
    assert "printing/0 | in pieces" in out
    assert "printing/0 | café \ufffd\ufffd" in out
    long = [line.removeprefix("printing/0 | ") for line in out if "éé" in line]
    assert "".join(long) == "é" * 40_000 and len(long) == 5
    assert {"printing/0 |  10 %", "printing/0 |  100 %"} <= set(lines_of(server, "stderr"))


def test_lines_of_two_workers_are_never_mixed(serve: Serve) -> None:
    # All of them may wait, also on a machine that is so busy that they wait for long.
    server = serve("printing.py", arguments=("--replicas", "2", "--set", "printing.max_wait_s=60"))
    answers = [server.submit("/printing", f"t{number}") for number in range(300)]
    assert [answer.result().body for answer in answers if answer.result().status != 200] == []
    whole = re.compile(r"printing/([01]) \| (t\d+) (\2 )*")

    def printed() -> list[str]:
        return [line for line in lines_of(server, "stderr") if " | t" in line]

    until(lambda: len(printed()) >= 300, "all lines")
    assert [line for line in printed() if not whole.fullmatch(line)] == []
    assert len(printed()) == 300, "each once"
    assert {match[1] for line in printed() if (match := whole.fullmatch(line))} == {"0", "1"}, "both have printed"


def test_json_has_a_field_for_it_and_failures_stay_objects(serve: Serve) -> None:
    server = serve("printing.py", arguments=("--log-format", "json"))
    assert server.post("/printing", "binary").status == 200
    assert server.post("/printing", "raise", {"x-request-id": "mine"}).status == 500

    def documents(text: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in text.split("\n")[:-1]]  # the last line may be half written

    printed = until(
        lambda: [line for line in documents(server.stdout()) if line["message"] == "café \ufffd\ufffd"], "it is printed"
    )
    assert [(line["deployment"], line["replica"], line["stream"]) for line in printed] == [("printing", 0, "stdout")]

    def of_request() -> list[dict[str, Any]]:
        return [line for line in documents(server.log()) if line.get("request_id") == "mine"]

    until(lambda: len(of_request()) >= 2, "the worker's line, with the traceback, and the front's")
    failures = of_request()
    assert len(failures) == 2
    assert all((line["deployment"], line["reason"]) == ("printing", "model_failed") for line in failures)
    assert sum("traceback" in line for line in failures) == 1
    assert [line["replica"] for line in failures if "traceback" in line] == [0]
    warm = [line for line in documents(server.log()) if line["message"] == "printing/0: loaded and warm"]
    assert [(line["deployment"], line["replica"]) for line in warm] == [("printing", 0)]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_model_that_cannot_be_loaded_shows_its_traceback_before_the_end(serve: Serve, format: str) -> None:
    server = serve("fails_to_load.py", arguments=("--log-format", format), wait=False)
    assert server.wait_exit() == 1
    log = server.log()
    assert "Traceback" in log and log.index("Traceback") < log.rindex("cannot be loaded")
