"""Starting: ready means ready, and what cannot start says why."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness import Serve, until
from slow_modules import SLOW_MODULES


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("fails_to_load.py", ["Traceback", "FileNotFoundError", "the weights are not where they should be"]),
        ("fails_to_import.py", ["Traceback", "ModuleNotFoundError", "a_module_that_is_not_there"]),
        ("there_is_no_such_file.py", ["there_is_no_such_file.py"]),
    ],
)
def test_what_cannot_load_says_why_and_ends_the_server(serve: Serve, target: str, words: list[str]) -> None:
    server = serve(target, wait=False)
    assert server.wait_exit() != 0
    for word in words:
        assert word in server.log()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "sleepy.max_batch_sise=3"), ["max_batch_sise", "max_batch_size"]),
        (("--set", "sleepi.max_batch_size=3"), ["sleepi", "sleepy"]),
        (("--set", "SLEEPY.max_batch_size=3"), ["SLEEPY", "sleepy"]),
        (("--set", "sleepy.max_batch_size=many"), ["max_batch_size", "many"]),
        (("--host", "0.0.0.0"), ["--allow-unauthenticated"]),
    ],
)
def test_wrong_options_are_refused_with_a_suggestion(
    serve: Serve, arguments: tuple[str, ...], words: list[str]
) -> None:
    server = serve("sleepy.py", arguments=arguments, wait=False)
    assert server.wait_exit() != 0
    for word in words:
        assert word in server.log()


def test_options_without_a_name_are_those_of_the_only_deployment(serve: Serve) -> None:
    server = serve("sleepy.py", arguments=("--replicas", "2", "--max-batch-size", "3"))
    with server.client() as client:
        options = client.get("/config").json()["deployments"]["sleepy"]["options"]
    assert (options["replicas"], options["max_batch_size"]) == (2, 3)
    assert len(server.workers()) == 2


def test_options_without_a_name_are_refused_if_several_deployments_are_served(serve: Serve) -> None:
    server = serve("noop.py", arguments=("--replicas", "2"), wait=False)
    assert server.wait_exit() != 0
    assert "(noop, shout, mirror); write --set noop.replicas=2" in server.log()


def test_a_worker_loads_only_what_its_model_needs(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "loaded.py").write_text(
        "import sys, jitney\n@jitney.deployment\ndef loaded(texts: list[str]) -> list[str]:\n"
        "    return [' '.join(sys.modules) for _ in texts]\n"
    )
    loaded = set(serve(str(tmp_path / "loaded.py")).post("/loaded", "x").json().split())
    assert "jitney.worker.process" in loaded
    assert not {"PIL", "ctypes", *SLOW_MODULES} & loaded


def test_not_ready_while_loading_and_probes_never_wait(serve: Serve) -> None:
    server = serve("slow_load.py", wait=False, is_gate_shut=True)
    until(lambda: server.calls("load"), "the model begins to load")
    with server.client() as client:
        assert client.get("/livez").status == 200
        waiting = client.get("/readyz")
        assert waiting.status == 503
        refused = client.post("/slow_load", "x")
        assert (refused.status, refused.reason) == (503, "loading")
        assert int(refused.headers["retry-after"]) >= 1
        server.open_gate()
        server.wait_ready()
        assert client.post("/slow_load", "x").json() == "x"


def test_stopping_while_loading_leaves_nobody(serve: Serve) -> None:
    server = serve("slow_load.py", wait=False, is_gate_shut=True)
    until(lambda: server.calls("load"), "the model begins to load")
    server.terminate()
    server.wait_exit(30)
    server.assert_nobody_left()


@pytest.mark.parametrize("further", [[], ["--reload"]])
def test_files_beside_a_target_are_not_taken_for_what_jitney_imports(further: list[str], tmp_path: Path) -> None:
    for name in ("json.py", "jitney.py", "queue.py"):
        (tmp_path / name).write_text("raise RuntimeError('this is not what was meant')\n")
    (tmp_path / "helper.py").write_text("WORD = 'found'\n")
    model = "import jitney\nimport helper\n\n\n@jitney.deployment\ndef words(texts: list[str]) -> list[str]:\n"
    (tmp_path / "beside.py").write_text(f"{model}    return [helper.WORD for _ in texts]\n")
    command = [Path(sys.executable).with_name("jitney"), "serve", "beside.py", "--port", "0", *further]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        said: list[str] = []
        for line in server.stderr:
            said.append(line)
            if "ready after" in line or "waiting for a change" in line:
                break
        server.terminate()
        assert "ready after" in said[-1], "".join(said)


def test_a_model_whose_full_batch_does_not_fit_is_served(serve: Serve) -> None:
    server = serve("narrow.py")
    warning = "narrow/0: a batch of 8 is too much for the memory of the device; the largest that ran: 2"
    until(lambda: warning in server.log(), "the log says how large a batch may be")
    outcomes = server.post("/narrow/batch", ["a"] * 8).json()
    assert outcomes == {"outcomes": [{"value": "A"}] * 8, "failed": 0}
