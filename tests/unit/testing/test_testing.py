"""`jitney.testing` as the author of a model and the author of an application use it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple

import jitney
import jitney.fastapi
import jitney.testing
import msgspec
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient


class Order(msgspec.Struct):
    product: str
    count: int = 1


class Price(msgspec.Struct):
    product: str
    total: float


class Pair(NamedTuple):
    low: np.ndarray
    high: np.ndarray


@jitney.deployment(max_batch_size=2)
class Prices:
    def __init__(self, tax: float = 0.0) -> None:
        self.tax = tax
        self.sizes: list[int] = []
        self.is_closed = False

    def predict(self, orders: list[Order]) -> list[Price | jitney.InvalidInput]:
        if any(order.product == "bad" for order in orders):
            raise ValueError("this is a bad one")
        assert jitney.context().deployment == "prices"
        return [self.price(order, len(orders)) for order in orders]

    def price(self, order: Order, size: int) -> Price | jitney.InvalidInput:
        if order.product == "gold":
            return jitney.InvalidInput("gold is not sold", field="$.product")
        return Price(order.product, order.count * (1 + self.tax) + 100 * size)

    def close(self) -> None:
        CLOSED.append("prices")


@jitney.deployment
class Clip:
    @jitney.method
    def embed(self, texts: list[str]) -> list[str]:
        return [f"{text} by {jitney.context().method}" for text in texts]


@jitney.deployment
def bounds(image: Annotated[np.ndarray, jitney.Tensor("float32", (None,))]) -> Pair:
    return Pair(image.min(axis=1), image.max(axis=1))


@jitney.deployment
def shout(texts: list[str]) -> list[str]:
    return [f"{text.upper()} {each.id}" for text, each in zip(texts, jitney.context().requests, strict=True)]


@jitney.deployment(batched=False)
async def later(text: str) -> bytes:
    await asyncio.sleep(0)
    return text.encode()


@jitney.deployment(batched=False, max_batch_size=4)
class Speaks:
    """Answers in parts, all items of a call side by side."""

    def __init__(self) -> None:
        self.held = self.most = 0

    async def predict(self, text: str) -> AsyncIterator[jitney.Step[str]]:
        self.held += 1
        self.most = max(self.most, self.held)
        for letter in text:
            await asyncio.sleep(0)
            if letter == "!":
                raise jitney.InvalidInput("no shouting")
            yield letter
        self.held -= 1
        yield jitney.End(str(self.most))


CLOSED: list[str] = []
models = jitney.testing.fixture(Prices, bounds, shout, later, Speaks, options={"prices.init.tax": 0.5})


def test_inline_serves_the_methods_of_a_class() -> None:
    with jitney.testing.inline(Clip) as models:
        assert models[Clip].embed("a") == "a by embed"
        assert models.clip.embed.many(["a", "b"]) == ["a by embed", "b by embed"]


def test_a_fixture_gives_models_without_processes(models: jitney.SyncModels) -> None:
    assert models[Prices](Order("tea", 2)) == Price("tea", 103.0)
    low, high = models[bounds](np.array([1, 5, 3], np.float32))
    assert (low, high) == (1.0, 5.0)
    assert models[shout]("a", request_id="mine") == "A mine"
    assert models.later("a") == b"a"
    assert models[Speaks]("ab") == "ab1"
    assert models[Speaks].many(["ab", "cd", "ef"]) == ["ab3", "cd3", "ef3"]
    with pytest.raises(jitney.InvalidInput, match="no shouting"):
        models[Speaks]("a!")


def test_many_items_share_batches_of_the_models_size(models: jitney.SyncModels) -> None:
    answers = models[Prices].many([Order("a", 0), Order("b", 0), Order("c", 0)])
    assert [answer.total for answer in answers] == [200.0, 200.0, 100.0]
    assert [pair.high for pair in models[bounds].many([np.ones(1, np.float32), np.ones(2, np.float32)])] == [1, 1]


def test_errors_are_those_that_callers_get(models: jitney.SyncModels, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(jitney.InvalidInput, match="gold is not sold") as refused:
        models[Prices](Order("gold"))
    assert (refused.value.status, refused.value.field) == (422, "$.product")
    with pytest.raises(jitney.InvalidInput, match=r"\$.count"):
        models.prices({"product": "tea", "count": "two"})
    with pytest.raises(jitney.InvalidInput, match="expected str, got int"):
        models.shout(3)
    failed = models.prices.many([Order("tea"), Order("bad")], return_exceptions=True)
    assert [type(each) for each in failed] == [dict, jitney.ModelFailed]
    assert "this is a bad one" in capsys.readouterr().err
    with pytest.raises(jitney.NotFound, match="did you mean 'shout'"):
        models["shou"]


def test_a_model_is_closed_with_its_block() -> None:
    CLOSED.clear()
    with jitney.testing.inline(Prices) as inside:
        assert inside.prices({"product": "tea"}) == {"product": "tea", "total": 101.0}
        assert CLOSED == []
    assert CLOSED == ["prices"]
    with (
        pytest.raises(jitney.NotFound, match="did you mean"),
        jitney.testing.inline(Prices, options={"price.retry": False}),
    ):
        pass


app = FastAPI()
jitney.fastapi.install(app, Prices, shout)


@app.get("/price")
async def price(
    product: str, prices: Annotated[jitney.Model[Order, Price], jitney.fastapi.model("prices")]
) -> jitney.fastapi.JSONResponse:
    return jitney.fastapi.JSONResponse(await prices(Order(product)))


@app.get("/blocking")
def blocking(text: str, shout: Annotated[jitney.SyncModel[str, str], jitney.fastapi.sync_model("shout")]) -> list[str]:
    return shout.many([text, "b"])


def busy(order: Order) -> Price:
    if order.product == "rare":
        raise jitney.Overloaded("come back", retry_after_s=7)
    if order.product == "broken":
        raise ValueError("oh")
    return Price(order.product, 1.0)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with jitney.testing.fake({Prices: busy}, shout=str.upper), TestClient(app) as client:
        yield client


def test_an_application_of_fastapi_runs_with_fakes(client: TestClient) -> None:
    assert client.get("/price?product=tea").json() == {"product": "tea", "total": 1.0}
    assert client.get("/blocking?text=a").json() == ["A", "B"]
    refused = client.get("/price?product=rare")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert client.get("/price?product=broken").status_code == 500


def increment(item: int) -> int:
    return item + 1


async def ask(**models: Any) -> list[Any]:
    with jitney.testing.fake(models) as fakes:
        async with jitney.connect("unix:/no/such/socket") as connected, jitney.run(Prices) as engine:
            answers = [await connected.shout("a"), await engine.prices.many([1, 2])]
        with jitney.connect_sync("tcp:example.org:1") as sync:
            answers.append(sync.shout("b"))
        return [answers, fakes.calls]


def test_run_and_connect_give_the_fakes_and_calls_are_kept() -> None:
    answers, calls = asyncio.run(ask(shout=str.upper, prices=increment))
    assert answers == ["A", [2, 3], "B"]
    assert calls == [("shout", "a"), ("prices", 1), ("prices", 2), ("shout", "b")]


def test_a_fake_that_is_async_is_refused() -> None:
    async def answer(item: str) -> str:
        return item

    with pytest.raises(TypeError, match="'shout' is `async def`"), jitney.testing.fake(shout=answer):
        pass


Signal = Annotated[np.ndarray, jitney.Tensor("float32", (None,))]


@jitney.deployment
def halves(signals: list[Signal]) -> list[dict[str, float]]:
    is_bad = any(signal[0] < 0 for signal in signals)
    for signal in signals:
        signal[:] = signal / 2
    if is_bad:
        raise ValueError("a negative number")
    return [{"first": float(signal[0]), "together": len(signals)} for signal in signals]


def test_a_model_that_writes_to_arrays_of_unequal_length_gets_them_anew() -> None:
    with jitney.testing.inline(halves) as models:
        outcomes: list[Any] = models.halves.many(
            [np.array([n] * abs(n), np.float32) for n in (2, -1, 4)], return_exceptions=True
        )
    assert [outcome["first"] for outcome in (outcomes[0], outcomes[2])] == [1.0, 2.0]
    assert isinstance(outcomes[1], jitney.ModelFailed)
    with jitney.testing.inline(halves) as models:
        assert [each["together"] for each in models.halves.many([[1.0], [1.0, 1.0]])] == [2, 2]


@jitney.deployment
class Letters:
    def predict(self, texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        left = [list(text) for text in texts]
        while any(left):
            if any(letters[:1] == ["!"] for letters in left):
                raise ValueError("no shouting")
            yield [letters.pop(0) if letters else jitney.End() for letters in left]


@jitney.deployment(batched=False)
def drawn(count: int) -> Iterator[jitney.Step[np.ndarray, str]]:
    for number in range(count):
        yield np.full(2, number, np.float32)
    yield jitney.End(answer="all", reason="length", usage=jitney.Usage(1, count))


@jitney.deployment(batched=False)
async def spoken(text: str) -> AsyncIterator[jitney.Step[bytes]]:
    for letter in text:
        await asyncio.sleep(0)
        yield letter.encode()


def test_inline_models_have_streams() -> None:
    with jitney.testing.inline(Letters, drawn, spoken, shout) as models:
        assert list(models[Letters].stream("bus")) == ["b", "u", "s"]
        arrays = models[drawn].stream(2)
        assert [part.tolist() for part in arrays] == [[0, 0], [1, 1]]
        assert arrays.end == jitney.End(answer="all", reason="length", usage=jitney.Usage(1, 2))
        assert list(models.spoken.stream("ab")) == [b"a", b"b"]
        failing = models[Letters].stream("ab!")
        assert [next(failing), next(failing)] == ["a", "b"]
        with pytest.raises(jitney.ModelFailed, match="no shouting"):
            next(failing)
        with pytest.raises(TypeError, match="answers once"):
            models[shout].stream("a")
        assert models[Letters]("bus") == "bus"


CLOSED_FAKES: list[str] = []


def endless(text: str) -> Iterator[Any]:
    try:
        while True:
            yield text
    finally:
        CLOSED_FAKES.append(text)


def tagged(text: str) -> Iterator[Any]:
    if text == "busy":
        raise jitney.Overloaded("come back", retry_after_s=7)
    yield "a"
    yield None
    if text == "broken":
        raise ValueError("oh")
    yield jitney.End("b", reason="length", usage=jitney.Usage(1, 2))


async def read_fakes() -> None:
    async with jitney.connect("unix:/no/such/socket") as models:
        parts = models.tagged.stream("text")
        assert [part async for part in parts] == ["a", "b"]
        assert parts.end == jitney.End(reason="length", usage=jitney.Usage(1, 2))
        assert await models.tagged("text") == "ab"
        with pytest.raises(jitney.Overloaded) as refused:
            await models.tagged.stream("busy").begin()
        assert refused.value.retry_after_s == 7
        broken = models.tagged.stream("broken")
        with pytest.raises(jitney.ModelFailed, match="oh"):
            _ = [part async for part in broken]
        assert broken.received == 1
        async with models.endless.stream("left") as endless:
            async for part in endless:
                assert (part, await models.shout("a")) == ("left", "A"), "other models answer meanwhile"
                break
        assert await models.shout("b") == "B"
        assert CLOSED_FAKES == ["left"]
        with pytest.raises(TypeError, match="answers once"):
            models.shout.stream("a")


def test_fakes_that_yield_have_streams() -> None:
    CLOSED_FAKES.clear()
    with jitney.testing.fake(tagged=tagged, endless=endless, shout=str.upper) as fakes:
        asyncio.run(read_fakes())
        assert fakes.calls[:2] == [("tagged", "text"), ("tagged", "text")]
        with jitney.run_sync(Prices) as sync:
            assert list(sync.tagged.stream("text")) == ["a", "b"]
