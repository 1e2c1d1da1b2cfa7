"""What `make bench-peers` measures within a budget, and how a run goes on where it ended."""

import dataclasses
import importlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
plan: Any = importlib.import_module("peers.plan")
catalog: Any = importlib.import_module("peers.catalog")
reports: Any = importlib.import_module("peers.report")
loads: Any = importlib.import_module("peers.loads")
generator: Any = importlib.import_module("peers.generator")
command: Any = importlib.import_module("bench_peers")

SERVERS = list(catalog.SERVERS.values())
EVERYTHING = plan.Plan(tuple(loads.LOADS))


def test_everything_fits_the_ninety_minutes_that_the_command_may_take() -> None:
    assert plan.estimate_s(EVERYTHING, SERVERS) <= 90 * 60
    assert plan.choose(EVERYTHING, SERVERS, 90 * 60) == EVERYTHING


@pytest.mark.parametrize("minutes", [75, 60, 45, 30, 20, 15, 10])
def test_a_plan_fits_its_budget_and_says_what_it_left_out(minutes: int) -> None:
    chosen = plan.choose(EVERYTHING, SERVERS, minutes * 60)
    assert plan.estimate_s(chosen, SERVERS) <= minutes * 60
    assert chosen.left_out
    assert chosen.repetitions == 3
    for load in set(EVERYTHING.loads) - set(chosen.loads):
        assert f"no load `{load}`" in chosen.left_out
    for point in set(EVERYTHING.points) - set(chosen.points):
        assert f"no point `{point}`" in chosen.left_out
    assert (f"measurements of {chosen.seconds:g} s" in chosen.left_out) == (chosen.seconds != EVERYTHING.seconds)


def test_answers_in_parts_are_measured_when_they_are_named_and_alone() -> None:
    assert command.loads_of("") == tuple(loads.LOADS)
    assert command.loads_of("stream") == ("stream-noop", "stream-sleepy")
    with pytest.raises(SystemExit, match="in a separate run"):
        command.loads_of("noop,stream-noop")
    streams = plan.Plan(tuple(loads.STREAMS))
    assert plan.estimate_s(streams, SERVERS) <= 90 * 60
    for server in SERVERS:
        assert plan.tuning_load(plan.Plan(("stream-noop",), tuned_on="sleepy"), server, "stream-noop") == "stream-noop"


def test_the_text_of_a_stream_is_joined_and_its_end_is_not_part_of_it() -> None:
    native = b'data: "ab"\n\ndata: "c"\n\nevent: end\ndata: {"reason":"stop"}\n\n'
    assert loads.joined(native) == "abc"
    assert loads.joined(b"event: message\r\ndata: ab\r\n\r\ndata: [DONE]\r\n\r\n") == "ab"
    item = loads.STREAMS["stream-noop"].distinct(3)
    assert loads.is_right("stream-noop", item, item["text"] * item["parts"])
    assert not loads.is_right("stream-noop", item, item["text"])
    lengths = loads.chat_lengths(256)
    assert lengths == loads.chat_lengths(256) and min(lengths) >= 10 and max(lengths) <= 500


def test_more_time_never_measures_less() -> None:
    found = [plan.choose(EVERYTHING, SERVERS, minutes * 60) for minutes in range(5, 95, 5)]
    for less, more in itertools.pairwise(found):
        assert set(less.loads) <= set(more.loads)
        assert set(less.points) <= set(more.points)
        assert less.seconds <= more.seconds


def test_what_was_tuned_before_leaves_time_for_more() -> None:
    tuned = frozenset((load, server.name) for load in loads.LOADS for server in SERVERS)
    fresh = plan.choose(EVERYTHING, SERVERS, 22 * 60)
    known = plan.choose(EVERYTHING, SERVERS, 22 * 60, tuned)
    assert set(fresh.loads) < set(known.loads)


def test_a_budget_that_nothing_fits_gets_the_least_plan() -> None:
    least = plan.choose(EVERYTHING, SERVERS, 1)
    assert (least.loads, least.repetitions) == (("noop",), 1)


def test_every_grid_has_at_most_three_cells_with_names_of_their_own() -> None:
    for server in SERVERS:
        names = {cell.name for cell in server.cells}
        assert 1 <= len(names) == len(server.cells) <= 3
    assert catalog.SERVERS["jitney"].cells == (catalog.Cell(),)


def test_every_server_serves_a_load_or_says_why_not() -> None:
    for server in SERVERS:
        known = set(server.loads) | set(server.missing)
        assert known in (set(loads.LOADS), set(loads.STREAMS), set(loads.EVERY))
        assert all(server.missing.values())


def test_names_may_be_families() -> None:
    known = list(catalog.SERVERS)
    assert command.words("mosec, fastapi", known, "PEERS") == [
        "mosec",
        "fastapi-naive",
        "fastapi-threads",
        "fastapi-batched",
        "mosec-stream",
        "fastapi-stream",
    ]
    assert command.words("", known, "PEERS") == known
    with pytest.raises(SystemExit, match="there is no 'mosek'"):
        command.words("mosek", known, "PEERS")


def test_points_may_be_kinds_and_are_those_that_the_generator_can_do() -> None:
    bench, wrk = generator.JitneyBench(), object.__new__(generator.Wrk)
    assert command.points_of("", bench) == plan.POINTS
    assert command.points_of("", bench, are_streams=True) == ("closed 1", "closed 16", "closed 64")
    assert command.points_of("closed 16", bench) == ("closed 16",)
    assert command.points_of("", wrk) == plan.POINTS[:3]
    assert command.points_of("closed 64, open", bench) == ("closed 64", "open 60%", "open 150%")
    for alone, by in (("open", bench), ("open 60%", wrk)):
        with pytest.raises(SystemExit, match="add one"):
            command.points_of(alone, by)
    with pytest.raises(SystemExit, match="there is no 'closed 2'"):
        command.points_of("closed 2", bench)


def test_figures_of_another_build_or_generator_are_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    bench = generator.JitneyBench()
    path.write_text(json.dumps({"versions": {"commit": command.commit()}, "generator": {"name": bench.name}}))
    command.check_resumed(path, bench)
    with pytest.raises(SystemExit, match="generator"):
        command.check_resumed(path, object.__new__(generator.Wrk))
    path.write_text(json.dumps({"versions": {"commit": "of before"}, "generator": {"name": bench.name}}))
    with pytest.raises(SystemExit, match="commit of before"):
        command.check_resumed(path, bench)


def test_a_run_goes_on_with_the_figures_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    first = reports.Report(path)
    first.add_tuning("noop", "mosec", {"max_wait_time=1": 10.0, "max_wait_time=5": 20.0}, "max_wait_time=5")
    sample: dict[str, Any] = {
        "load": "noop",
        "repetition": 1,
        "server": "mosec",
        "point": "closed 1",
        "cell": "x",
        "figures": {},
    }
    first.add_sample(sample)
    first.data["versions"] = {"commit": "abc"}
    first.add_problem("bytes", "mosec", "it ended")

    again = reports.Report(path)
    assert again.has_sample("noop", 1, "mosec", "closed 1")
    assert not again.has_sample("noop", 2, "mosec", "closed 1")
    assert again.chosen("noop", "mosec") == "max_wait_time=5"
    assert again.data["problems"] == [], "what failed is tried again"
    assert again.data["versions"] == {"commit": "abc"}, "a run that goes on, and ends early, can go on again"


def test_a_run_that_goes_on_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen anew, with all tuned, more would fit: measurements of two lengths would stand in one table."""
    path, bench = tmp_path / "peers.json", generator.JitneyBench()
    first = plan.choose(EVERYTHING, SERVERS, 22 * 60)
    begun = command.describe(first, bench, SimpleNamespace(budget_minutes=22, tuned=None))
    begun["method"]["notes"].append("load `noop`: 1 repetitions, the time was used up")
    path.write_text(json.dumps({**begun, "servers": {}, "samples": [], "tuning": []}))

    planned: list[Any] = []

    class Run:
        def __init__(self, chosen: Any, *_: Any) -> None:
            planned.append(chosen)

        def everything(self, _: float) -> None: ...

    def installed(*_: Any) -> list[Any]:
        return SERVERS

    monkeypatch.setattr(command, "Run", Run)
    monkeypatch.setattr(command, "install", installed)
    monkeypatch.setattr(sys, "argv", ["bench_peers.py", "--resume", str(path), "--seconds", "4"])
    assert command.main() == 0
    assert [dataclasses.replace(chosen, left_out=first.left_out) for chosen in planned] == [first]
    method = json.loads(path.read_text())["method"]
    assert method == {**begun["method"], "notes": method["notes"]}
    assert method["notes"] == [note for note in begun["method"]["notes"] if "used up" not in note]


def test_a_row_of_answers_in_parts_is_installed_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def install(server: Any, _max_download_gb: float) -> None:
        asked.append(server.name)

    monkeypatch.setattr(command.environments, "install", install)
    monkeypatch.setattr(sys, "argv", ["bench_peers.py", "--install-only", "--peers", "mosec-stream"])
    assert command.main() == 0
    assert asked == ["jitney", "mosec-stream"]


def test_pytriton_gets_the_array_that_the_model_made(monkeypatch: pytest.MonkeyPatch) -> None:
    served = importlib.import_module("peers.served.models")
    vectors = np.eye(3, 384, dtype=np.float32)

    class MiniLM:
        def embed(self, texts: list[str]) -> Any:
            return vectors[: len(texts)]

    monkeypatch.setattr(served, "MODEL", "minilm")
    monkeypatch.setattr(served, "MiniLM", MiniLM)
    monkeypatch.setitem(sys.modules, "models", served)
    names = {"pytriton": (), "pytriton.model_config": ("DynamicBatcher", "ModelConfig", "Tensor")}
    for name, attributes in {**names, "pytriton.triton": ("Triton", "TritonConfig")}.items():
        module = SimpleNamespace(**dict.fromkeys(attributes, object))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "peers.served.pytriton_server", raising=False)
    server: Any = importlib.import_module("peers.served.pytriton_server")
    requests = [SimpleNamespace(data={"text": np.array([[b"text"]] * rows, np.object_)}) for rows in (1, 2)]
    first, second = (answer["vector"] for answer in server.texts(requests))
    assert np.shares_memory(first, vectors)
    assert (first.shape, second.shape, second.dtype) == ((1, 384), (2, 384), np.float32)


def test_settings_of_an_earlier_run_are_taken_if_they_still_exist(tmp_path: Path) -> None:
    rows = [
        {"load": "noop", "server": "mosec", "cell": "max_wait_time=10", "rps": 3.0, "is_chosen": True},
        {"load": "noop", "server": "bentoml", "cell": "gone=1", "rps": 3.0, "is_chosen": True},
    ]
    (tmp_path / "old.json").write_text(json.dumps({"tuning": rows}))
    report = reports.Report(tmp_path / "new.json")
    report.take_tuning(tmp_path / "old.json")
    assert report.tuned() == {("noop", "mosec")}


def test_a_server_without_any_figure_is_reported_with_its_reason(tmp_path: Path) -> None:
    report = reports.Report(tmp_path / "peers.json")
    report.set_server(catalog.SERVERS["mosec"], "measured", "1.0")
    report.add_problem("noop", "mosec", "it ended with 1: no such file")
    report.close()
    written = json.loads((tmp_path / "peers.json").read_text())["servers"]["mosec"]
    assert (written["state"], written["reason"]) == ("does not start", "it ended with 1: no such file")


def test_a_reason_does_not_say_where_an_environment_lies(tmp_path: Path) -> None:
    report = reports.Report(tmp_path / "peers.json")
    reason = 'File "/somewhere/peers-env/ray/lib/python3.11/site-packages/ray/serve/proxy.py", line 9, in ready'
    report.add_problem("noop", "ray", reason)
    report.set_server(catalog.SERVERS["ray"], "does not start", "1.0", reason)
    short = 'File "ray/serve/proxy.py", line 9, in ready'
    written = json.loads((tmp_path / "peers.json").read_text())
    assert (written["problems"][0]["reason"], written["servers"]["ray"]["reason"]) == (short, short)


def test_a_server_that_answers_with_somebody_elses_text_is_wrong() -> None:
    assert loads.is_right("noop", {"text": "mine"}, {"text": "mine"})
    assert not loads.is_right("noop", {"text": "mine"}, {"text": "yours"})


def test_answers_of_triton_are_read_behind_their_header() -> None:
    header = b'{"outputs":[]}'
    headers = {"inference-header-content-length": str(len(header))}
    assert catalog.triton_answer("bytes", header + b"body", headers) == b"body"
    assert catalog.triton_answer("grouped", b'{"text":"t","group":"a","model_name":"m"}', {}) == {
        "text": "t",
        "group": "a",
    }


def test_figures_of_the_generator_are_read_from_its_document() -> None:
    run = {
        "rate_per_s": 100.0,
        "latency_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0},
        "requests": {"due": 10, "answered": 7, "refused": 2, "failed": 1},
        "client": {"is_limit": True},
        "parts": None,
    }
    figures = generator.read({"runs": [run]})
    assert (figures["rps"], figures["p95_ms"], figures["is_generator_limit"]) == (100.0, 2.0, 1.0)
    assert (figures["answered"], figures["refused"], figures["broken"]) == (7, 2, 1)
    assert generator.read({"runs": [{**run, "latency_ms": None}]})["p50_ms"] is None
    assert "parts_s" not in figures
    parts = {"rate_per_s": 6400.0, "first_ms": {"p50": 0.5}, "gap_ms": None}
    figures = generator.read({"runs": [{**run, "parts": parts}]})
    assert (figures["parts_s"], figures["first_p50_ms"], figures["gap_p99_ms"]) == (6400.0, 0.5, None)


def test_what_all_are_asked_for_alike_comes_when_each_was_asked_for_its_own() -> None:
    asked = dataclasses.replace(EVERYTHING, points=(*plan.POINTS, *plan.SAME))
    assert asked.turns() == [plan.POINTS, tuple(plan.SAME)]
    assert EVERYTHING.turns() == [plan.POINTS]
    assert plan.estimate_s(asked, SERVERS) > plan.estimate_s(EVERYTHING, SERVERS)
    assert set(plan.choose(asked, SERVERS, 45 * 60).points) < set(asked.points), "what is extra is left out first"


def test_all_are_asked_for_a_share_of_what_another_could_do_at_first(tmp_path: Path) -> None:
    report = reports.Report(tmp_path / "peers.json")
    for repetition, server, point, rps in (
        (1, "jitney", "closed 64", 900),
        (1, "mosec", "closed 1", 100),
        (1, "mosec", "closed 64", 400),
        (1, "litserve", "closed 64", 70),
        (1, "litserve", "open 150%", 700),
        (2, "mosec", "closed 64", 800),
    ):
        sample = {"load": "noop", "repetition": repetition, "server": server, "point": point, "figures": {"rps": rps}}
        report.add_sample(sample)
    assert sorted(report.capacities("noop")) == [70, 400]
    assert report.capacities("bytes") == []
