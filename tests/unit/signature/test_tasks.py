"""A deployment with a task: what it must take and return, and the error if it does not."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jitney
import msgspec
import numpy as np
import pytest
from fake_core import FakeBatch
from jitney.codecs import Codec, tags
from jitney.codecs.encode.copying import copy_output
from jitney.config.layers import DeploymentOptions
from jitney.deployments.deployment import MARK, Deployment
from jitney.errors import InvalidOutput, TargetError


class Texts(msgspec.Struct):
    input: str


class All(msgspec.Struct):
    input: str | list[int]
    dimensions: int | None = None
    language: str = "en"


@dataclasses.dataclass
class Renamed:
    text: str


class Demanding(msgspec.Struct):
    input: str
    model: str


class Required(msgspec.Struct):
    input: str
    language: str


class NoText(msgspec.Struct):
    input: list[int]


class Floats(msgspec.Struct):
    input: str | list[float]


class MustHave(msgspec.Struct):
    input: str
    dimensions: int


def of(predict: Callable[..., Any], task: str = "embedding", **options: Any) -> Deployment:
    return getattr(jitney.deployment(task=task, **options)(predict), MARK)


def texts(inputs: list[str]) -> jitney.Embeddings: ...
def structs(inputs: list[Texts]) -> jitney.Embeddings: ...
def everything(inputs: list[All]) -> jitney.Embeddings: ...
def required(inputs: list[Required]) -> jitney.Embeddings: ...


@pytest.mark.parametrize(
    ("predict", "takes_tokens", "takes_dimensions"),
    [(texts, False, False), (structs, False, False), (everything, True, True), (required, False, False)],
)
def test_the_annotation_says_what_clients_may_send(
    predict: Callable[..., Any], takes_tokens: bool, takes_dimensions: bool
) -> None:
    task = of(predict).compiled_task()
    assert task == {"kind": "embedding", "takes_tokens": takes_tokens, "takes_dimensions": takes_dimensions}


def returns_vectors(inputs: list[str]) -> np.ndarray: ...
def takes_bytes(inputs: list[bytes]) -> jitney.Embeddings: ...
def takes_arrays(inputs: np.ndarray) -> jitney.Embeddings: ...
def takes_renamed(inputs: list[Renamed]) -> jitney.Embeddings: ...
def takes_demanding(inputs: list[Demanding]) -> jitney.Embeddings: ...
def takes_no_text(inputs: list[NoText]) -> jitney.Embeddings: ...
def takes_floats(inputs: list[Floats]) -> jitney.Embeddings: ...
def takes_must_have(inputs: list[MustHave]) -> jitney.Embeddings: ...


@pytest.mark.parametrize(
    ("predict", "says"),
    [
        (returns_vectors, "-> jitney.Embeddings"),
        (takes_bytes, "here it takes bytes"),
        (takes_arrays, "here it takes arrays"),
        (takes_renamed, "here the fields are text"),
        (takes_demanding, "`model` needs a default"),
        (takes_no_text, "`input` is list"),
        (takes_floats, "it is str, or str"),
        (takes_must_have, "int | None = None"),
    ],
)
def test_what_cannot_do_the_task_is_refused_at_load(predict: Callable[..., Any], says: str) -> None:
    with pytest.raises(TargetError) as caught:
        of(predict).compiled_task()
    assert says in str(caught.value)
    assert f"`{predict.__name__}`" in str(caught.value)


def test_one_item_at_a_time_is_no_task() -> None:
    def one(text: str) -> jitney.Embeddings: ...

    with pytest.raises(TargetError, match="takes a batch"):
        of(one, batched=False).compiled_task()


class More(jitney.Chat):
    tools: tuple[str, ...] = ()


class Prompt(msgspec.Struct):
    prompt: str | list[int]


class Streamed(msgspec.Struct):
    messages: list[dict[str, Any]]
    stream: bool


def chat(chats: list[jitney.Chat]) -> list[str]: ...
def chat_in_parts(chats: list[More]) -> Iterator[list[jitney.Step[str]]]: ...
def prompts(items: list[Prompt]) -> list[str]: ...
def chat_of_texts(chats: list[str]) -> list[str]: ...
def chat_of_prompts(chats: list[Prompt]) -> list[str]: ...
def chat_of_streams(chats: list[Streamed]) -> list[str]: ...
def chat_with_numbers(chats: list[jitney.Chat]) -> list[int]: ...
def chat_in_numbers(chats: list[jitney.Chat]) -> Iterator[list[jitney.Step[int]]]: ...
def images(items: list[Prompt]) -> Iterator[list[jitney.Step[jitney.Image, jitney.Image]]]: ...
def images_of_texts(texts: list[str]) -> list[jitney.Image]: ...
def images_without_an_end(texts: list[str]) -> Iterator[list[jitney.Step[jitney.Image]]]: ...
def chat_with_an_object(chats: list[jitney.Chat]) -> Iterator[list[jitney.Step[str, dict[str, str]]]]: ...


@pytest.mark.parametrize(
    ("predict", "task", "compiled"),
    [
        (chat, "chat", {"kind": "chat"}),
        (chat_in_parts, "chat", {"kind": "chat"}),
        (chat_of_texts, "completion", {"kind": "completion", "takes_tokens": False}),
        (prompts, "completion", {"kind": "completion", "takes_tokens": True}),
        (images, "image", {"kind": "image"}),
        (images_of_texts, "image", {"kind": "image"}),
    ],
)
def test_models_that_write_text_or_make_images(
    predict: Callable[..., Any], task: str, compiled: dict[str, Any]
) -> None:
    assert of(predict, task).compiled_task() == compiled


@pytest.mark.parametrize(
    ("predict", "task", "says"),
    [
        (chat_of_texts, "chat", "jitney.Chat, .* here it takes text"),
        (chat_of_prompts, "chat", "here the fields are prompt"),
        (chat_of_streams, "chat", "`stream` needs a default"),
        (chat_with_numbers, "chat", "jitney.Step.str. for parts; here parts are object"),
        (chat_in_numbers, "chat", "here parts are object"),
        (chat_with_an_object, "chat", "here the whole answer is object"),
        (images_without_an_end, "image", "jitney.End.answer=....; here the whole answer is object"),
        (chat, "image", "here parts are text"),
        (chat, "completion", "a struct with the field `prompt` .* here the fields are messages"),
    ],
)
def test_models_that_do_something_else_are_refused(predict: Callable[..., Any], task: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        of(predict, task).compiled_task()


def test_an_unknown_task_is_refused_where_it_is_written() -> None:
    with pytest.raises(TargetError, match="did you mean `embedding`"):
        jitney.deployment(task="embeding")(texts)


class Rows:
    """Results of which only the arrays matter."""

    def __init__(self) -> None:
        self.taken: dict[str, tuple[str, list[Any]]] = {}

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        assert list(indices) == [0, 1]
        self.taken[name] = (dtype, np.asarray(data).tolist())


@pytest.mark.parametrize("tokens", [[3, 4], np.array([3, 4], np.uint8)])
def test_tokens_travel_beside_the_vectors(tokens: Any) -> None:
    codec = Codec(of(texts).signature, DeploymentOptions())
    output = jitney.Embeddings(np.eye(2, dtype=np.float32), tokens)
    rows = Rows()
    batch = FakeBatch([(tags.TEXT, "a"), (tags.TEXT, "b")])
    for kept in (output, copy_output(output)):
        assert codec.encode(kept, codec.decode(batch.core), None, batch.core, cast("Any", rows)) == []
        assert rows.taken == {"": ("float32", [[1, 0], [0, 1]]), "$tokens": ("int64", [3, 4])}


@pytest.mark.parametrize("tokens", [[1.5, 2], ["3", "4"]])
def test_tokens_are_whole_numbers(tokens: list[Any]) -> None:
    with pytest.raises(InvalidOutput, match="whole numbers"):
        jitney.Embeddings(np.eye(2), tokens)


@pytest.mark.parametrize(
    ("vectors", "tokens", "says"),
    [
        (np.ones((2, 3)), [1], "too few"),
        (np.ones((3, 3)), [1, 2], "too many"),
        (np.ones(2), [1, 2], "of shape"),
        (np.ones((2, 3, 4)), [1, 2], "of shape"),
    ],
)
def test_embeddings_that_are_no_answers_are_named(vectors: Any, tokens: list[int], says: str) -> None:
    codec = Codec(of(texts).signature, DeploymentOptions())
    with pytest.raises(InvalidOutput, match=says):
        codec.validate(jitney.Embeddings(vectors, tokens), 2)
