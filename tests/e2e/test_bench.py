"""`jitney bench` against real servers, with every protocol."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from harness import APPS, COLOUR, Serve, until
from jitney_bench import _generator
from PIL import Image

SHORT = ("--duration", "0.6", "--warmup", "0.1", "--users", "4")


def apps_environment(folder: Path) -> dict[str, str]:
    """What the apps of the tests need; nothing is inherited, so no key either."""
    files = {"JITNEY_TEST_CALLS": str(folder / "calls"), "JITNEY_TEST_GATE": str(folder / "gate")}
    return {"PATH": os.environ["PATH"], "HOME": str(folder), **files}


def bench(
    folder: Path, *arguments: str, code: int = 0, environment: dict[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """Run it as a user does; returns what it wrote and what it said."""
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    ran = subprocess.run(
        [sys.executable, "-m", "jitney", "bench", *arguments, "--json", str(out)],
        cwd=APPS,
        env=apps_environment(folder) | (environment or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(out.read_text()) if out.exists() else {}, ran.stdout + ran.stderr


def items(folder: Path, *documents: object) -> str:
    path = folder / "items.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


def test_a_target_is_served_loaded_and_ended(tmp_path: Path) -> None:
    options = ("--set", "words.max_batch_size=3")
    made, said = bench(tmp_path, "embedders.py", "--model", "words", *options, *SHORT)
    assert made["plan"]["options"]["max_batch_size"] == 3
    assert made["plan"]["options"]["policy"] == "auto"
    (run,) = made["runs"]
    assert made["format"] == "jitney-bench" and made["version"] == 1 and made["kind"] == "load"
    assert made["plan"]["load"] == {"kind": "closed", "users": 4, "ramp_s": 0.0, "think_s": [0.0, 0.0]}
    assert run["requests"]["answered"] == run["requests"]["due"] > 0
    assert made["summary"]["p50_ms"] == run["latency_ms"]["p50"]
    assert sum(run["batch_sizes"].values()) == run["requests"]["answered"]
    assert sum(run["closed_by"].values()) > 0
    assert 0 < run["server"]["model_busy"] < 1.2
    assert run["server"]["resident_mb"] > 10
    assert run["client"]["connections_opened"] == 4
    assert re.search(r"latency +p50 ", said)
    assert not COLOUR.search(said)


def test_an_open_loop_keeps_its_rate(tmp_path: Path, serve: Serve) -> None:
    server = serve("noop.py")
    url = f"http://127.0.0.1:{server.port}/shout"
    made, _ = bench(
        tmp_path, url, "--rate", "100", "--arrivals", "constant", "--duration", "1", "--warmup", "0",
        "--input", items(tmp_path, "a", "b"),
    )  # fmt: skip
    assert made["runs"][0]["requests"]["due"] == 99
    assert made["runs"][0]["client"]["late_ms"] is not None


@pytest.mark.parametrize(
    "protocol", [("native",), ("batch", "--items", "8"), ("openai", "--items", "3"), ("oip", "--items", "2")]
)
def test_every_protocol_is_loaded_as_its_clients_do(protocol: tuple[str, ...], tmp_path: Path, serve: Serve) -> None:
    server = serve("embedders.py")
    url = f"http://127.0.0.1:{server.port}"
    made, _ = bench(
        tmp_path, url, "--model", "words", "--protocol", *protocol, *SHORT, "--input", items(tmp_path, "a", "b c")
    )
    (run,) = made["runs"]
    size = int(protocol[-1]) if len(protocol) > 1 else 1
    assert run["items_answered"] == run["requests"]["answered"] * size > 0
    assert {name for name, times in run["server_ms"].items() if times} == {"queue", "batch", "model"}


@pytest.mark.parametrize("accept", [(), ("--header", "accept: application/x-ndjson")])
def test_parts_of_streams_are_counted_and_drawn(accept: tuple[str, ...], tmp_path: Path, serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve('spelling.py').port}/spell"
    html = tmp_path / "out.html"
    made, said = bench(
        tmp_path, url, "--stream", *accept, *SHORT, "--html", str(html), "--input", items(tmp_path, "hey", "you")
    )
    (run,) = made["runs"]
    assert made["plan"]["stream"] == "native"
    assert run["requests"]["answered"] == run["requests"]["due"] > 0
    assert run["parts"]["first_ms"]["p50"] <= run["latency_ms"]["p50"]
    assert run["parts"]["rate_per_s"] == pytest.approx(3 * run["rate_per_s"], rel=0.2)
    assert sum(point["parts_per_s"] for point in run["series"]) > 0
    assert re.search(r"rate +[\d,.]+ answers/s, [\d,.]+ parts/s\n", said)
    assert run["server_ms"]["first_part"] and run["server_ms"]["model"] is None
    assert re.search(r"to the first part +p50 ", said)
    assert re.search(r"first part +p50 ", said) and re.search(r"between parts +p50 ", said)
    assert "gap_curve" in html.read_text()


def test_streams_of_an_open_loop_and_of_chats_count_their_tokens(tmp_path: Path, serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve('chatting.py').port}"
    rate = ("--rate", "50", "--duration", "0.6", "--warmup", "0.1", "--stream", "--input", items(tmp_path, "hello"))
    made, said = bench(tmp_path, url, "--model", "echo", "--protocol", "chat", *rate)
    (run,) = made["runs"]
    assert made["plan"]["stream"] == "openai" and run["requests"]["answered"] > 0
    assert run["parts"]["tokens_per_s"] > 0
    assert "tokens/s" in said


def test_a_stream_that_ends_with_an_error_has_failed(tmp_path: Path, serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve('spelling.py').port}/spell"
    made, _ = bench(tmp_path, url, "--stream", *SHORT, "--input", items(tmp_path, "ab!"), code=1)
    (run,) = made["runs"]
    assert run["requests"]["answered"] == 0 < run["parts"]["count"]
    assert run["outcomes"][0]["status"] == 200 and run["outcomes"][0]["reason"] == "model_failed"


def test_answers_that_do_not_come_in_parts_are_told_before_the_load(tmp_path: Path, serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve('noop.py').port}/shout"
    _, said = bench(tmp_path, url, "--stream", *SHORT, "--input", items(tmp_path, "a"), code=2)
    assert "leave --stream away" in said


def test_items_that_fail_in_answered_requests_are_said_and_counted(tmp_path: Path, serve: Serve) -> None:
    url = f"http://127.0.0.1:{serve('embedders.py').port}"
    half = ("--items", "2", "--input", items(tmp_path, "a", 7))
    made, said = bench(tmp_path, url, "--model", "words", "--protocol", "batch", *half, *SHORT, code=1)
    (run,) = made["runs"]
    assert run["items_failed"] == run["items_answered"] == run["requests"]["answered"] > 0
    assert "items failed in requests that were answered" in said


@pytest.mark.parametrize("protocol", ["batch", "oip"])
def test_images_go_through_the_protocols_of_many_too(protocol: str, tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "images").mkdir()
    for width in (4, 400):
        Image.new("RGB", (width, 3)).save(tmp_path / "images" / f"{width}.png")
    url = f"http://127.0.0.1:{serve('images.py').port}/invert"
    made, _ = bench(tmp_path, url, "--protocol", protocol, "--items", "2", *SHORT, "--input", str(tmp_path / "images"))
    assert made["runs"][0]["requests"]["failed"] == 0 < made["runs"][0]["items_answered"]


FIELDS = """
import jitney, msgspec

class Item(msgspec.Struct):
    raw: bytes
    seed: bytes | None = None

@jitney.deployment(examples=[{"raw": "aGk="}, {"raw": "aGk=", "seed": "aGk="}])
def check(items: list[Item]) -> list[int]:
    for item in items:
        assert item.raw == b"hi" and item.seed in (None, b"hi")
    return [1 for _ in items]
"""


def test_fields_that_are_bytes_are_the_same_by_every_protocol(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "fields.py").write_text(FIELDS)
    url = f"http://127.0.0.1:{serve(str(tmp_path / 'fields.py')).port}/check"
    for protocol in (("native",), ("batch", "--items", "2"), ("oip",)):
        made, _ = bench(tmp_path, url, "--protocol", *protocol, *SHORT)
        assert made["runs"][0]["requests"]["failed"] == 0 < made["runs"][0]["items_answered"]


def test_a_key_is_sent_and_never_written(tmp_path: Path, serve: Serve) -> None:
    server = serve("noop.py", environment={"JITNEY_API_KEYS": "sesame"})
    url = f"http://127.0.0.1:{server.port}/shout"
    arguments = (url, *SHORT, "--input", items(tmp_path, "a"))
    _, said = bench(tmp_path, *arguments, code=2)
    assert "JITNEY_CLIENT_KEY" in said
    made, said = bench(tmp_path, *arguments, environment={"JITNEY_CLIENT_KEY": "sesame"})
    assert made["runs"][0]["requests"]["answered"] > 0
    assert "sesame" not in json.dumps(made) + said
    _, said = bench(tmp_path, *arguments, code=2, environment={"JITNEY_CLIENT_KEY": "mustard"})
    assert "does not take the API key" in said and "mustard" not in said and "set JITNEY_CLIENT_KEY" not in said


def test_an_input_that_the_model_does_not_take_is_told_before_the_load(tmp_path: Path, serve: Serve) -> None:
    server = serve("noop.py")
    _, said = bench(tmp_path, f"http://127.0.0.1:{server.port}/shout", *SHORT, "--input", items(tmp_path, 5), code=2)
    assert "422" in said and "Expected `str`" in said


def test_too_many_errors_are_an_exit_code(tmp_path: Path, serve: Serve) -> None:
    server = serve("noop.py", arguments=("--set", "noop.max_queued_items=1"))
    url = f"http://127.0.0.1:{server.port}"
    arguments = (url, "--model", "shout", *SHORT, "--input", items(tmp_path, "a", 5))
    made, said = bench(tmp_path, *arguments, code=1)
    assert "was refused or failed" in said
    assert {outcome["reason"] for outcome in made["runs"][0]["outcomes"]} == {"ok", "invalid_input"}
    bench(tmp_path, *arguments, "--max-error-share", "0.6")


def test_what_is_missing_is_named(tmp_path: Path, serve: Serve) -> None:
    server = serve("noop.py")
    url = f"http://127.0.0.1:{server.port}"
    for arguments, told in [
        ((url,), "name one with --model"),
        ((url, "--model", "nop"), "did you mean"),
        ((f"{url}/shout",), "has no examples"),
        ((f"{url}/nowhere",), "--input"),
        ((f"{url}/shoud",), "did you mean `shout`"),
        ((f"{url}/shoud",), "--model"),
        ((f"{url}/shout/batch",), f"{url}/shout --protocol batch"),
        (
            (f"{url}/shout/batch", "--protocol", "batch", "--input", items(tmp_path, "a")),
            f"{url}/shout --protocol batch",
        ),
        ((f"{url}/v1/embeddings",), f"{url} --model NAME --protocol openai"),
        ((f"{url}/v2/models/shout/infer",), f"{url} --model shout --protocol oip"),
        (("fails_to_load.py",), "cannot be served"),
    ]:
        assert told in bench(tmp_path, *arguments, code=2)[1], arguments


class Stranger(BaseHTTPRequestHandler):
    """Another HTTP server, which takes images."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None, str | None, bytes]]] = []

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers["content-type"], self.headers["x-extra"], body))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def test_any_other_server_is_loaded_with_a_folder_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"first")
    (folder / "b.jpg").write_bytes(b"second")
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v3/classify?top=1"
        made, _ = bench(tmp_path, url, "--input", str(folder), "--header", "X-Extra: yes", *SHORT)
        server.shutdown()
    (run,) = made["runs"]
    assert run["requests"]["answered"] > 0
    assert run["server_ms"] is None and run["closed_by"] is None and run["server"]["model_busy"] is None
    assert made["plan"]["headers"] == ["x-extra"]
    assert made["plan"]["inputs"]["content_types"] == ["image/jpeg", "image/png"]
    path = "/v3/classify?top=1"
    assert set(Stranger.seen) == {(path, "image/png", "yes", b"first"), (path, "image/jpeg", "yes", b"second")}


def test_runs_are_repeated(tmp_path: Path) -> None:
    made, said = bench(tmp_path, "embedders.py", "--model", "words", *SHORT, "--repeat", "2")
    assert len(made["runs"]) == 2
    assert "run 2 of 2" in said
    assert "all 2 runs" in said
    together, single = made["summary"]["latency_ms"], [run["latency_ms"] for run in made["runs"]]
    assert together["max"] == max(run["max"] for run in single)
    assert min(run["p50"] for run in single) <= together["p50"] <= max(run["p50"] for run in single)


def test_a_sweep_finds_a_knee_and_draws_it(tmp_path: Path) -> None:
    html = tmp_path / "out.html"
    made, said = bench(
        tmp_path, "embedders.py", "--model", "words", "--sweep", "--users", "4", "--duration", "0.5",
        "--warmup", "0.1", "--html", str(html),
    )  # fmt: skip
    assert [point["label"] for point in made["points"]] == ["1 user", "2 users", "4 users"]
    assert made["kind"] == "sweep"
    assert made["knee"] in range(3)
    assert f"limit: {made['limit']['who']}: {made['limit']['why']}" in said
    assert re.match("at (1 user|2 users|4 users) ", made["limit"]["why"])
    assert "← knee" in said
    page = html.read_text()
    assert "http://" not in page.split("<script>")[0].replace(made["plan"]["url"], "")
    (held,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(held) == made


def test_what_is_no_histogram_is_not_merged() -> None:
    with pytest.raises(ValueError, match="not a histogram"):
        _generator.merge_histograms(["nonsense"])
    count, quantiles, curve = json.loads(_generator.merge_histograms([]))
    assert (count, quantiles, curve) == (0, None, [])


@pytest.mark.parametrize("kind", [("--repeat", "3"), ("--sweep",)])
def test_what_was_measured_of_a_server_that_went_away_is_kept(
    kind: tuple[str, ...], tmp_path: Path, serve: Serve
) -> None:
    server = serve("noop.py")

    def end_when_it_is_used() -> None:
        until(lambda: server.metric("jitney_requests_total", deployment="shout", outcome="ok") > 20, "the run began")
        server.process.terminate()

    threading.Thread(target=end_when_it_is_used).start()
    made, said = bench(
        tmp_path, f"http://127.0.0.1:{server.port}/shout", "--rate", "50", "--duration", "3", "--warmup", "0",
        "--input", items(tmp_path, "a"), *kind, code=0 if kind == ("--sweep",) else 1,
    )  # fmt: skip
    runs = [point["run"] for point in made["points"]] if kind == ("--sweep",) else made["runs"]
    assert len(runs) == 1
    assert runs[0]["requests"]["answered"] > 0 and runs[0]["requests"]["failed"] > 0
    assert "Connection refused" in runs[0]["server"]["gone"] and runs[0]["closed_by"] is None
    assert "the server had ended before the run did" in said
    assert server.wait_exit() == 0


def test_ctrl_c_ends_the_run_and_the_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jitney", "bench", "embedders.py", "--model", "words", "--duration", "600"]
    command += ["--warmup", "0.2", "--interval", "0.5"]
    master, terminal = pty.openpty()  # on a terminal each interval is shown as it ends
    with subprocess.Popen(
        command, cwd=APPS, env=apps_environment(tmp_path), stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        assert process.stdout
        assert "http://127.0.0.1:" in process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = children.read_text().split()
        shown = b""
        while b" of 600 s" not in shown:
            shown += os.read(master, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert re.match(r"stopped after \d\.\d of 600 s: [\d,]+ answered, ", process.stdout.readline())
        until(lambda: not Path(f"/proc/{child}").exists(), "the server has ended")
    os.close(master)
