"""`--reload`: while a model is being written, its server goes on."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import Reply, Serve, until

MODEL = """
import jitney


@jitney.deployment{options}
def say(texts: list[str]) -> list[str]:
    return [{word!r} for text in texts]
"""


def write(file: Path, word: str, options: str = "") -> None:
    file.write_text(MODEL.format(word=word, options=options))


def test_changed_files_are_read_by_new_workers_and_the_port_stays_open(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "say.py"
    write(file, "one")
    server = serve(str(file), arguments=("--reload",))
    replies: list[Reply] = [server.post("/say", "x")]

    def says(word: str) -> bool:
        replies.append(server.post("/say", "x"))
        return replies[-1].json() == word

    for word in ("two", "three"):
        write(file, word)
        until(lambda word=word: says(word), f"{word} is said")
    assert {reply.status for reply in replies} == {200}
    file.write_text("def (\n")
    until(lambda: "invalid syntax" in server.log(), "what is wrong is on the terminal")
    write(file, "four")
    until(lambda: says("four"), "the next change is tried")


SECOND_NS = 1_000_000_000


def test_a_save_of_equal_size_in_the_same_second_is_read(serve: Serve, tmp_path: Path) -> None:
    """Python's cache of byte code compares versions of a file by size and by the second of the change."""
    (tmp_path / "words.py").write_text("WORD = 'one'\n")
    file = tmp_path / "say.py"
    text = MODEL.format(word="?", options="").replace("import jitney", "import jitney\nfrom words import WORD")
    file.write_text(text.replace("'?'", "'a ' + WORD"))
    second = file.stat().st_mtime_ns // SECOND_NS * SECOND_NS

    def save(path: Path, old: str, new: str, part_ns: int) -> None:
        path.write_text(path.read_text().replace(old, new))
        os.utime(path, ns=(second + part_ns, second + part_ns))

    save(file, "'a ' +", "'a ' +", 1)
    save(tmp_path / "words.py", "one", "one", 1)
    server = serve(str(file), arguments=("--reload",), environment={"PYTHONDONTWRITEBYTECODE": ""})
    assert server.post("/say", "x").json() == "a one"
    save(file, "'a ' +", "'b ' +", 2)
    until(lambda: server.post("/say", "x").json() == "b one", "the target's file is read anew")
    save(tmp_path / "words.py", "one", "two", 3)
    until(lambda: server.post("/say", "x").json() == "b two", "a module in the same folder is read anew")


SLOW = """
import time

import jitney


@jitney.deployment(max_batch_size=4, replicas=2)
def say(texts: list[str]) -> list[str]:
    time.sleep(0.02)
    return [{word!r} for text in texts]
"""


def test_under_full_load_no_batch_is_lost_with_a_worker_that_is_told_to_end(serve: Serve, tmp_path: Path) -> None:
    """Full batches are sent ahead to busy workers; none may go to one that ends."""
    file = tmp_path / "say.py"
    file.write_text(SLOW.format(word="0"))
    server = serve(str(file), arguments=("--reload",))
    words: set[str] = set()
    is_over: list[bool] = []

    def load() -> None:
        with server.client() as client:
            while "three" not in words and not is_over:
                reply = client.post("/say", "x")
                assert reply.status == 200, reply
                words.add(reply.json())

    with ThreadPoolExecutor(24) as pool:
        users = [pool.submit(load) for _ in range(24)]
        try:
            for word in ("one", "two", "three"):
                file.write_text(SLOW.format(word=word))
                until(lambda word=word: word in words or any(user.done() for user in users), f"{word} is said")
        finally:
            is_over.append(True)
        for user in users:
            user.result()
    assert server.metric("jitney_batches_total", reason="suspect") == 0, "no worker took a batch with it"
    assert server.metric("jitney_workers_lost_total", cause="renewed") >= 4


def test_a_deployment_that_has_become_another_is_served_by_a_server_that_starts_again(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "say.py"
    write(file, "one")
    server = serve(str(file), arguments=("--reload",))
    write(file, "two", "(max_batch_size=7)")
    until(lambda: "say: max_batch_size" in server.log(), "what changed is said")
    until(lambda: server.log().count("ready after") == 2, "it has started again")


def test_a_worker_of_a_file_that_has_become_another_model_is_refused(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "say.py"
    file.write_text(MODEL.format(word="one", options="").replace("return [", "__import__('os')._exit(3) or ["))
    server = serve(str(file))
    file.write_text(MODEL.format(word="two", options="").replace("list[str])", "list[bytes])"))
    server.submit("/say", "x")  # the worker ends, and the next one reads the changed file
    until(lambda: "say: input changed since the server was started" in server.log(), "what changed is said")
    write(file, "three")
    until(lambda: server.post("/say", "y").status == 200, "clients see the same deployment as before")


def test_a_file_that_cannot_be_loaded_is_reported_once_and_loaded_again_when_it_changes(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "say.py"
    write(file, "one")
    server = serve(str(file), arguments=("--reload",))
    file.write_text("def (:\n")
    until(lambda: "worker lost (load_failed)" in server.log(), "the error is reported")
    refused = server.post("/say", "x")
    assert refused.status == 503, "a request does not wait for a file that somebody is editing"
    log = server.log()
    assert log.count("SyntaxError: invalid syntax\n") == 1 and "fresh.py" not in log
    assert "(say.py, line 1); its files are loaded again when they change" in log
    assert "it will be replaced" not in log
    write(file, "two")
    until(lambda: server.post("/say", "y").status == 200, "the file is valid again")
    assert server.log().count("SyntaxError: invalid syntax\n") == 1
