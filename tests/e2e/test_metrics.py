"""What `/metrics` says is what clients saw."""

import os
import signal

import pytest
from harness import Load, Serve, until

PARTS = ("queue", "link", "decode", "predict", "encode")
BASE_S = 0.05


def test_refusals_are_not_answers(serve: Serve) -> None:
    server = serve(
        "sleepy.py",
        arguments=("--set", "sleepy.max_batch_size=4", "--set", "sleepy.max_queued_items=8"),
        environment={"JITNEY_TEST_BASE_S": str(BASE_S), "JITNEY_TEST_ITEM_S": "0"},
    )
    load = Load(server, "/sleepy", clients=48)
    load.wait_for(1000)
    load.stop()
    served = sum(reply.status == 200 for reply in load.replies.values())
    name = "jitney_request_duration_seconds"

    def of(suffix: str, **labels: str) -> float:
        return server.metric(f"{name}_{suffix}", deployment="sleepy", **labels)

    assert of("count", result="ok") == served
    assert of("count", result="refused") == len(load.replies) - served > served
    assert of("count", result="failed") == 0
    assert of("bucket", result="ok", le="0.03") == 0, "no answer takes less than a batch"
    assert of("bucket", result="refused", le="0.03") > 0.9 * of("count", result="refused")
    assert server.metric("jitney_max_queued_items", deployment="sleepy") == 8
    assert server.metric("jitney_max_batch_items", deployment="sleepy") == 4


def test_the_phases_of_items_add_up(serve: Serve) -> None:
    environment = {"JITNEY_TEST_BASE_S": str(BASE_S), "JITNEY_TEST_ITEM_S": "0"}
    server = serve("sleepy.py", environment=environment)
    count = 10
    for number in range(count):
        assert server.post("/sleepy", f"item-{number}").status == 200
    name = "jitney_phase_seconds_total"
    phases = {phase: server.metric(name, phase=phase) for phase in (*PARTS, "receive", "render")}
    # A lone request does not wait.
    assert all(seconds > 0 for phase, seconds in phases.items() if phase != "queue"), phases
    assert phases["predict"] >= count * BASE_S
    whole = server.metric("jitney_request_duration_seconds_sum", deployment="sleepy")
    parts = sum(phases[phase] for phase in PARTS)
    # Each end is rounded to a microsecond by the worker.
    assert 0.5 * whole < parts <= whole + count * 1e-5, (phases, whole)


def test_the_first_lost_worker_is_seen(serve: Serve) -> None:
    server = serve("sleepy.py")
    lost = {"deployment": "sleepy", "cause": "died"}
    assert 'jitney_workers_lost_total{cause="died",deployment="sleepy"} 0' in server.get("/metrics").body.decode()
    held = server.submit_held("/sleepy", ["a", "b", "c"])
    (victim,) = server.workers()
    os.kill(victim, signal.SIGKILL)
    until(lambda: server.metric("jitney_workers_lost_total", **lost) == 1, "the loss is counted")
    server.open_gate()
    assert all(answer.result().status == 200 for answer in held)
    assert server.metric("jitney_worker_starts_total", deployment="sleepy", replica="0") == 2
    assert server.metric("jitney_reruns_total", deployment="sleepy", why="worker_lost") >= 1
    assert server.metric("jitney_replicas", deployment="sleepy") == 1
    assert server.metric("jitney_replicas", deployment="sleepy", state="ready") == 1
    assert server.metric("jitney_wanted_replicas", deployment="sleepy") == 1


def test_requests_without_a_deployment_are_counted(serve: Serve) -> None:
    server = serve("sleepy.py")
    assert server.get("/nothing").status == 404
    assert server.get("/v1/nothing").status == 404
    assert server.get("/v2/health/live").status == 200
    for protocol, status in (("native", "4xx"), ("openai", "4xx"), ("open_inference", "2xx")):
        found = server.metric("jitney_http_requests_total", **{"protocol": protocol, "class": status})
        assert found == 1, (protocol, status)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="/proc is only on Linux")
def test_processes_are_measured(serve: Serve) -> None:
    server = serve("sleepy.py")
    assert server.post("/sleepy", "a").status == 200
    (worker,) = server.workers()
    labels = {"deployment": "sleepy", "replica": "0"}
    assert server.metric("jitney_worker_resident_bytes", **labels) > 5 << 20
    assert server.metric("jitney_worker_cpu_seconds_total", **labels) > 0
    assert server.metric("jitney_worker_threads", **labels) == len(os.listdir(f"/proc/{worker}/task"))
    assert server.metric("jitney_worker_items_total", **labels) == 1
    assert server.metric("jitney_worker_batches_total", **labels) == 1
    assert server.metric("jitney_worker_load_seconds", **labels) > 0
    assert server.metric("process_resident_memory_bytes") > 5 << 20
    assert server.metric("process_open_fds") > 3
    until(lambda: server.metric("jitney_front_lag_seconds_count") > 3, "the front measures its lag")


def test_what_a_model_counts_is_on_the_page(serve: Serve) -> None:
    server = serve("counting.py", arguments=("--set", "counting.replicas=2"))
    for text in ("one two three", "für dich", "four", "five"):
        assert server.post("/counting", text).json() == len(text)

    def words(language: str) -> float:
        return server.metric("words_total", deployment="counting", language=language)

    until(lambda: (words("en"), words("de")) == (5, 2), "all words are counted")
    until(lambda: server.metric("text_characters_count", deployment="counting") == 4, "all texts are counted")
    bounds = {bound: server.metric("text_characters_bucket", le=bound) for bound in ("5", "10", "+Inf")}
    assert bounds == {"5": 2, "10": 3, "+Inf": 4}
    assert server.metric("text_characters_sum") == len("one two three" + "für dich" + "four" + "five")
