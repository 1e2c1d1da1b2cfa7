"""The image: built from the whole Dockerfile, run with the limits of the composed stack, stopped, and starved."""

import json
import time
import urllib.request

from containers import Container, image, podman, running
from harness import APPS, Client, until
from tools import DEPLOY

ORPHANING = ("--volume", f"{APPS / 'orphaning.py'}:/srv/model.py:ro")


def is_ready(container: Container) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{container.port}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        assert container.inspect()["State"]["Running"], container.log()
        return False


def wait_ready(container: Container) -> None:
    until(lambda: is_ready(container), "the container is ready")


def test_it_serves_without_rights_and_stops_in_order() -> None:
    with running("--memory", "4g", "--pids-limit", "4096") as container:
        wait_ready(container)
        with Client(container.port) as client:
            assert len(client.post("/embedder", "How big is London?").json()) == 256
        status = container.execute("cat", "/proc/1/status")
        assert "Name:\ttini" in status and "Uid:\t10001\t10001\t10001\t10001" in status
        assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        refused = podman("exec", container.name, "touch", "/srv/file", check=False)
        assert "Read-only file system" in refused.stderr
        # The command of HEALTHCHECK.
        health = json.loads(json.dumps(image_config()["Healthcheck"]["Test"]))
        assert health.pop(0) == "CMD"
        container.execute(*health)
        begun = time.monotonic()
        podman("stop", "--time", "40", container.name)
        assert time.monotonic() - begun < 20
        assert container.inspect()["State"]["ExitCode"] == 0
        assert "every request has been answered" in container.log()


def image_config() -> dict[str, dict[str, list[str]]]:
    (found,) = json.loads(podman("image", "inspect", image()).stdout)
    return found["Config"] | {
        "Healthcheck": found["HealthCheck"] if "HealthCheck" in found else found["Config"]["Healthcheck"]
    }


def zombies(container: Container) -> list[str]:
    script = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null || true"
    return container.execute("sh", "-c", script).split()


def leave_orphans(container: Container) -> None:
    with Client(container.port) as client:
        for _ in range(5):
            assert client.post("/orphaning", 0.1).status == 200
        assert client.post("/orphaning", 1000).status == 200


def test_nothing_stays_behind_with_tini_and_without() -> None:
    for arguments in [(), ("--entrypoint", '["jitney", "serve", "model.py"]')]:
        with running(*ORPHANING, *arguments) as container:
            wait_ready(container)
            leave_orphans(container)
            first = container.execute("cat", "/proc/1/cmdline")
            assert ("tini" in first) == (not arguments), first
            until(lambda: not zombies(container), f"what has ended is reaped: {zombies(container)}")
            podman("stop", "--time", "40", container.name)
            assert container.inspect()["State"]["ExitCode"] == 0, container.log()


def test_a_server_that_needs_more_memory_than_it_may_have_is_killed() -> None:
    with running("--memory", "32m", "--memory-swap", "32m") as container:
        until(lambda: not container.inspect()["State"]["Running"], "it ends")
        assert container.inspect()["State"]["ExitCode"] == 137


def test_a_folder_of_yours_is_served_as_the_composed_stack_does_it() -> None:
    folder = DEPLOY.parent / "examples"
    with running("--volume", f"{folder}:/srv:ro", command=("jitney", "serve", "embedder.py")) as container:
        wait_ready(container)
        with Client(container.port) as client:
            assert client.post("/embedder", "ab").status == 200
