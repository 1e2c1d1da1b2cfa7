"""Replicas come with the load and go after it; no request is lost."""

from harness import Load, Serve, Server, until

ELASTIC = ("--set", "sleepy.max_batch_size=4", "--set", "sleepy.scale_down_after_s=1")
# 4 items in 0.204 s: a replica answers 20 a second.
SLOW = {"JITNEY_TEST_BASE_S": "0.2", "JITNEY_TEST_ITEM_S": "0.001"}


def ready(server: Server) -> float:
    return server.metric("jitney_ready_replicas", deployment="sleepy")


def wanted(server: Server) -> float:
    return server.metric("jitney_wanted_replicas", deployment="sleepy")


def test_replicas_come_with_the_load_and_go_after_it(serve: Serve) -> None:
    bounds = ("--set", "sleepy.min_replicas=1", "--set", "sleepy.max_replicas=3")
    server = serve("sleepy.py", arguments=(*ELASTIC, *bounds), environment=SLOW)
    assert (ready(server), len(server.workers())) == (1, 1)
    load = Load(server, "/sleepy", clients=24)
    until(lambda: ready(server) >= 2, "the load brings replicas")
    assert 2 <= wanted(server) <= 3
    load.wait_for(60)
    load.stop()
    until(lambda: len(server.workers()) == 1, "without the load they go")
    load.assert_all_right()
    assert set(server.computed()) == set(load.replies)
    assert server.metric("jitney_workers_lost_total", deployment="sleepy") == 0
    assert "sleepy: 1 -> " in server.log()
    until(lambda: "fewer replicas are needed" in server.log(), "the log says why they go")
    scaling = server.get("/config").json()["deployments"]["sleepy"]["batches"]["scaling"]
    assert (scaling["wanted"], wanted(server)) == (1, 1)
    assert server.post("/sleepy", "abc").json() == "cba"


def test_replicas_that_go_under_load_lose_no_request(serve: Serve) -> None:
    bounds = ("--set", "sleepy.min_replicas=1", "--set", "sleepy.max_replicas=3", "--set", "sleepy.replicas=3")
    server = serve("sleepy.py", arguments=(*ELASTIC, *bounds))
    load = Load(server, "/sleepy", clients=2)
    until(lambda: len(server.workers()) < 3, "there are more than this load needs")
    load.wait_for(100)
    load.stop()
    load.assert_all_right()
    assert set(server.computed()) == set(load.replies)


def test_a_deployment_that_is_not_used_has_no_replica_until_a_request_comes(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=(*ELASTIC, "--set", "sleepy.min_replicas=0"))
    until(lambda: not server.workers(), "it falls asleep")
    until(lambda: ready(server) == 0, "and has no replica")
    probe = server.get("/readyz")
    assert (probe.status, probe.json()["asleep"]) == (200, ["sleepy"])
    assert not server.workers()  # a probe starts none
    hurried = server.post("/sleepy", "abc", {"x-request-timeout-ms": "20"})
    assert (hurried.status, hurried.reason) == (503, "scaled_to_zero")
    assert int(hurried.headers["retry-after"]) >= 1
    assert server.post("/sleepy", "abc").json() == "cba"  # it waits until the model is loaded
    until(lambda: not server.workers(), "it falls asleep again")
    load = Load(server, "/sleepy", clients=8)
    load.wait_for(50)
    load.stop()
    load.assert_all_right()
