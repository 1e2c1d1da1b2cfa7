"""The stories' baselines do what their authors described, and their costs are calibrated as they say."""

import asyncio
import heapq
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
accelerator: Any = importlib.import_module("stories.accelerator")
batching: Any = importlib.import_module("stories.baselines.batching")
clients: Any = importlib.import_module("stories.clients")
images: Any = importlib.import_module("stories.images")
language: Any = importlib.import_module("stories.language")
main: Any = importlib.import_module("stories.__main__")
pictures: Any = importlib.import_module("stories.pictures")
steady: Any = importlib.import_module("stories.steady")
story: Any = importlib.import_module("stories.story")


def batches_of(items: list[tuple[str, int]], size: int, wait_s: float) -> list[list[tuple[str, int]]]:
    """The batches that a batcher forms of items that are all there when it begins; grouped by their first part."""
    formed: list[list[tuple[str, int]]] = []

    def predict(batch: list[tuple[str, int]]) -> list[int]:
        formed.append(batch)
        return [number for _, number in batch]

    def group(item: tuple[str, int]) -> str:
        return item[0]

    async def ask_all() -> list[int]:
        batcher = batching.Batcher(predict, size, wait_s, group)
        asked = [asyncio.create_task(batcher.ask(item)) for item in items]
        await asyncio.sleep(0)  # each has entered its queue
        forming = asyncio.create_task(batcher.run())
        answers = await asyncio.gather(*asked)
        forming.cancel()
        return answers

    assert asyncio.run(ask_all()) == [number for _, number in items], "every caller gets its own answer"
    return formed


def test_a_batch_is_closed_when_it_is_full() -> None:
    items = [("one size", number) for number in range(8)]
    assert batches_of(items, 4, wait_s=3600) == [items[:4], items[4:]]


def test_draining_takes_what_waits() -> None:
    items = [("one size", number) for number in range(5)]
    assert batches_of(items, 32, wait_s=0) == [items]


def test_a_batch_that_is_not_full_is_closed_after_the_wait() -> None:
    assert batches_of([("one size", 1)], 8, wait_s=0.01) == [[("one size", 1)]]


def test_the_oldest_group_goes_first_and_no_batch_mixes_groups() -> None:
    items = [("wide", 1), ("high", 2), ("wide", 3), ("high", 4), ("square", 5)]
    formed = batches_of(items, 8, wait_s=0)
    assert formed == [[("wide", 1), ("wide", 3)], [("high", 2), ("high", 4)], [("square", 5)]]


def test_a_model_that_raises_fails_its_batch_and_not_the_next() -> None:
    def predict(batch: list[int]) -> list[int]:
        if 1 in batch:
            raise RuntimeError("no room")
        return batch

    async def ask() -> int:
        batcher = batching.Batcher(predict, 1, 0)
        forming = asyncio.create_task(batcher.run())
        with pytest.raises(RuntimeError, match="no room"):
            await batcher.ask(1)
        answer: int = await batcher.ask(2)
        forming.cancel()
        return answer

    assert asyncio.run(ask()) == 2


def test_an_accelerator_computes_one_batch_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 100.0, list[float]()
    monkeypatch.setattr(accelerator.time, "monotonic", lambda: now)
    monkeypatch.setattr(accelerator.time, "sleep", slept.append)
    device = accelerator.Accelerator(0.5, 0.25)
    device.run(2)
    device.run(2)  # arrives while the first is being computed, because the clock is simulated
    assert slept == pytest.approx([1.0, 2.0])


def test_a_picture_says_what_was_asked_for_and_who_shared_its_batch() -> None:
    order = pictures.Order("a bus", 640, 512)
    said = pictures.said_in(pictures.png(order, {"items": 3, "groups": 1}))
    assert pictures.Order(*said["order"]) == order
    assert said["batch"] == {"items": 3, "groups": 1}


def test_a_picture_that_was_cut_off_is_none() -> None:
    with pytest.raises(ValueError, match="not a whole PNG"):
        pictures.said_in(pictures.png(pictures.Order("a bus"), {})[:-5])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_body_in_chunks_is_whole_when_its_last_chunk_is_there(size: int) -> None:
    body = b"x" * size
    sent = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, body, size, body)
    assert clients.unchunked(sent) == 2 * body
    assert all(clients.unchunked(sent[:end]) is None for end in range(len(sent)))


def test_a_rate_does_not_depend_on_where_the_window_cuts_the_batches() -> None:
    done = [float(batch) for batch in (0, 4, 8, 12) for _ in range(40)]
    assert clients.rate(done) == pytest.approx(10, rel=0.07)
    assert clients.rate([1.0]) == 0


def test_who_waits_through_the_whole_window_counts() -> None:
    """As in `jitney bench`. A request that was due before the window and is answered in it does not count."""
    told: list[float] = []

    class Waiting:
        first_at = None

        async def post(self, *_: object) -> tuple[int, bytes]:
            await asyncio.sleep(told.pop())
            return 200, b""

    async def latencies(took_s: float) -> list[float]:
        talk = clients.Talk("/", lambda _: b"", None)  # pyright: ignore[reportUnknownLambdaType]
        load = clients.Load(0, talk, warm_s=0.05, window_s=0.05)
        told.append(took_s)
        await load.ask(Waiting(), clients.time.perf_counter())
        return load.outcome.answered_ms

    (waited_ms,) = asyncio.run(latencies(0.15))
    assert waited_ms >= 150
    assert asyncio.run(latencies(0.06)) == []


def test_one_at_a_time_the_steady_story_has_its_authors_latencies() -> None:
    free_at, took_ms = 0.0, list[float]()
    for due in clients.arrivals(steady.RATE, steady.SECONDS, steady.SEED):
        free_at = max(free_at, due) + steady.BASE_S + steady.ITEM_S
        took_ms.append((free_at - due) * 1e3)
    assert clients.quantile(took_ms, 0.5) == pytest.approx(166, abs=1)
    assert clients.quantile(took_ms, 0.95) == pytest.approx(408, abs=1)


def crowd(size: int, wait_s: float) -> tuple[float, float]:
    """Images a second and median latency of the first story's crowd, with answers that cross no wire."""
    coming = [(user * images.STEP_S, user) for user in range(images.USERS)]
    now, took = 0.0, list[float]()
    while now < images.RUN_S:
        now = max(now, coming[0][0])
        batch = [heapq.heappop(coming)]
        end = now + wait_s
        while len(batch) < size and coming and coming[0][0] <= end:
            batch.append(heapq.heappop(coming))
            now = max(now, batch[-1][0])
        now = (end if len(batch) < size else now) + pictures.BASE_S + pictures.ITEM_S * len(batch)
        took += [now - came for came, _ in batch]
        for _, user in batch:
            heapq.heappush(coming, (now + 0.05, user))
    return len(took) / images.RUN_S, clients.quantile(took, 0.5)


def test_the_picture_story_has_its_authors_figures() -> None:
    rate, p50_s = crowd(1, 0)
    assert rate == pytest.approx(0.30, abs=0.01)
    assert p50_s == pytest.approx(19.8, abs=0.2)
    rate, p50_s = crowd(8, 0.5)
    assert rate == pytest.approx(1.01, abs=0.02)
    assert p50_s == pytest.approx(5.8, abs=0.1)


def test_the_language_story_has_its_authors_rates() -> None:
    one_at_a_time, by_40 = (n / (language.BASE_S + n * language.ITEM_S) for n in (1, 40))
    assert one_at_a_time == pytest.approx(40, rel=0.02)
    assert by_40 == pytest.approx(404, rel=0.05)


def told(*names: str) -> Any:
    return story.Story(
        key="9",
        name="a story",
        what="",
        scaled="",
        theirs=story.Theirs("as measured", {"rps": 1.0}),
        variants=[story.Variant(name, "jitney" if name == "ours" else "baseline", lambda: None) for name in names],
        targets=[story.Target("ours / theirs", 2, False, story.ratio("rps", "ours", "theirs")), story.all_right()],
        compared=("ours", "theirs"),
        plot=story.Plot("x", "y"),
        share=1,
    )


def sample(rps: float, wrong: float = 0) -> Any:
    return story.Sample({"rps": rps, "wrong": wrong}, [(1, rps)])


def test_a_report_holds_medians_against_targets_and_forgives_no_wrong_answer() -> None:
    samples = {"ours": [sample(9), sample(30), sample(10, wrong=1)], "theirs": [sample(4), sample(5), sample(6)]}
    report = story.report(told("ours", "theirs"), samples)
    assert report["ratio"]["rps"] == 2
    assert [target["verdict"] for target in report["targets"]] == ["pass", "FAIL"]
    assert report["rows"][0]["spread"]["rps"] == [9, 30]
    assert report["plot"]["series"][0]["points"] == [(1, 10)]


def test_what_was_not_measured_is_said_to_be_so() -> None:
    report = story.report(told("ours", "theirs"), {"ours": [sample(9)]})
    assert report["targets"][0]["verdict"] == "not measured"


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    kept = tmp_path / "progress.json"
    first = main.Progress(kept, {"seconds": 1}, is_fresh=False)
    first.keep("9", "ours", sample(9), took_s=1.0)
    resumed = main.Progress(kept, {"seconds": 1}, is_fresh=False)
    assert [variant.name for variant in main.next_variants(told("ours", "theirs"), resumed, most=1)] == ["theirs"]
    assert resumed.samples["9"]["ours"][0].figures["rps"] == 9
    assert not main.Progress(kept, {"seconds": 2}, is_fresh=False).samples, "other settings begin anew"
    assert not main.Progress(kept, {"seconds": 1}, is_fresh=True).samples
