"""The decorator, targets and the manifest, with files as users write them."""

import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import jitney
import msgspec
import numpy as np
import pydantic
import pytest
from jitney.config.layers import Overrides, SetText, resolve
from jitney.config.reading import read_overrides
from jitney.deployments.deployment import Deployment
from jitney.deployments.manifest import manifest
from jitney.deployments.targets import load_target
from jitney.errors import ConfigError, TargetError

EMBEDDER = '''
from __future__ import annotations
import jitney
import numpy as np

@jitney.deployment(max_batch_size=64, examples=["hello"])
class TextEmbedder:
    """Turns text into vectors.

    More about it.
    """

    def __init__(self, scale: float = 1.0, path: str = "a") -> None:
        self.scale, self.path = scale, path

    def predict(self, texts: list[str]) -> Later:
        return [self.scale for _ in texts]

@jitney.deployment
def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]

again = upper
Later = np.ndarray
'''


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    held = set(sys.modules)
    yield
    for name in set(sys.modules) - held:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return str(path)


def served(texts: list[str]) -> list[str]: ...


def of(obj: Any) -> Deployment:
    return obj.__jitney_deployment__


def test_a_file_serves_all_its_deployments_in_order(tmp_path: Path) -> None:
    first, second = load_target(write(tmp_path, "embedder.py", EMBEDDER))
    assert (first.name, second.name) == ("text_embedder", "upper")
    assert first.doc == "Turns text into vectors."
    assert first.signature.output.kind == "array"
    assert first.declared == {"max_batch_size": 64}


def test_one_deployment_is_chosen_by_its_class_or_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, "embedder.py", EMBEDDER)
    assert [found.name for found in load_target(f"{path}:TextEmbedder")] == ["text_embedder"]
    assert [found.name for found in load_target(f"{path}:text_embedder")] == ["text_embedder"]
    with pytest.raises(TargetError, match="did you mean `TextEmbedder`"):
        load_target(f"{path}:TextEmbeder")
    with pytest.raises(TargetError, match="`Later` is not a deployment"):
        load_target(f"{path}:Later")


def test_modules_are_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "some_package/__init__.py", "")
    write(tmp_path, "some_package/models.py", EMBEDDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != ""])
    assert len(load_target("some_package.models")) == 2
    assert len(load_target("some_package.models:upper")) == 1
    with pytest.raises(TargetError, match=r"there is no module `some_package\.model`"):
        load_target("some_package.model")


def test_a_file_sees_its_neighbours_and_is_not_main(tmp_path: Path) -> None:
    write(tmp_path, "neighbour_of_target.py", "NAME = 'x'")
    source = f"{EMBEDDER}\nfrom neighbour_of_target import NAME\nassert __name__ == 'target_file'\n"
    assert len(load_target(write(tmp_path, "target_file.py", source))) == 2


def test_a_file_may_have_the_name_of_a_loaded_module(tmp_path: Path) -> None:
    assert len(load_target(write(tmp_path, "types.py", EMBEDDER))) == 2
    assert sys.modules["types"].__name__ == "types"


def test_imported_deployments_are_served_only_when_named(tmp_path: Path) -> None:
    write(tmp_path, "embedder_elsewhere.py", EMBEDDER)
    path = write(tmp_path, "app_of_others.py", "from embedder_elsewhere import TextEmbedder\n")
    with pytest.raises(TargetError, match="defines no deployments, but imports TextEmbedder; name one"):
        load_target(path)
    assert [found.name for found in load_target(f"{path}:TextEmbedder")] == ["text_embedder"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", r"has no deployments in it; did you forget @jitney\.deployment\?"),
        ("raise SystemExit(3)", r"it exits while being imported \(code 3\)"),
        ("def broken(:", "failed: SyntaxError"),
        (
            "import jitney\n@jitney.deployment(name='a')\ndef f(x: list[str]) -> list[str]: ...\n"
            "@jitney.deployment(name='a')\ndef g(x: list[str]) -> list[str]: ...\n",
            "f and g are both called `a`",
        ),
        ("import jitney\n@jitney.deployment(group_by=('x',))\ndef f(x: list[str]): ...", "only items that are structs"),
        ("import jitney\n@jitney.deployment\ndef f(x: list[Nope]): ...", "failed: NameError"),
        ("import jitney\n@jitney.deployment\ndef f(x: 'list[Nope]'): ...", "name `Nope` is not defined"),
    ],
)
def test_a_target_that_cannot_be_served_says_why(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(write(tmp_path, "bad_target.py", source))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", "there is no file"),
        ("no_such_module_here", "there is no module `no_such_module_here`"),
        ("a/b", "neither a Python file"),
        (":Name", "is not of the form"),
    ],
)
def test_a_target_that_is_nowhere_says_so(target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(target)


def test_an_import_error_keeps_only_the_users_frames(tmp_path: Path) -> None:
    path = write(tmp_path, "failing_target.py", "def load():\n    return 1 / 0\nload()\n")
    with pytest.raises(TargetError, match="ZeroDivisionError") as caught:
        load_target(path)
    cause = caught.value.__cause__
    assert cause is not None
    assert [frame.filename for frame in traceback.extract_tb(cause.__traceback__)] == [path, path]
    Path(path).write_text("import jitney\n@jitney.deployment\ndef f(x: list[str]): ...\n")
    assert len(load_target(path)) == 1


def test_the_decorator_leaves_things_usable() -> None:
    @jitney.deployment(replicas=2)
    class HTTPModelV2:
        def predict(self, texts: list[str]) -> list[str]:
            return texts

    @jitney.deployment
    def function(texts: list[str]) -> list[str]:
        return texts

    assert HTTPModelV2().predict(["a"]) == function(["a"]) == ["a"]
    assert of(HTTPModelV2).name == "http_model_v2"
    assert of(function).name == "function"
    assert of(function).instantiate({})(["b"]) == ["b"]


def test_types_defined_around_a_deployment_are_found() -> None:
    class Local(msgspec.Struct):
        x: int = 1

    @jitney.deployment(group_by=("x",))
    class Uses:
        def predict(self, items: "list[Local]") -> "list[Local]": ...

    assert of(Uses).signature.input.item is Local
    assert of(Uses).compiled_terms()[0][0]["source"]["field"]["name"] == "x"


def test_static_and_class_methods_predict() -> None:
    @jitney.deployment
    class Static:
        @staticmethod
        def predict(texts: list[str]) -> list[str]:
            return texts

    @jitney.deployment
    class OfClass:
        @classmethod
        def predict(cls, texts: list[str]) -> list[str]:
            return texts

    assert of(Static).signature.input.kind == of(OfClass).signature.input.kind == "text"
    assert of(OfClass).instantiate({})(["a"]) == ["a"]


class Prompt(msgspec.Struct):
    prompt: str
    width: int = 512


Item = TypeVar("Item")
Answer = TypeVar("Answer")
Bounded = TypeVar("Bounded", bound=str)
Named = TypeVar("Named", bound="Prompt")
Model = TypeVar("Model", bound=pydantic.BaseModel)
Record = TypeVar("Record", bound=msgspec.Struct)


class Base(Generic[Item, Answer]):
    def predict(self, items: list[Item]) -> "list[Answer | None]": ...


class Swapped(Base[Answer, list[Item]], Generic[Item, Answer]): ...


class OfBound(Generic[Bounded]):
    def predict(self, items: list[Bounded]) -> list[Bounded]: ...


class OfModels(Generic[Model]):
    def predict(self, items: list[Model]) -> list[str]: ...


class OfRecords(Generic[Record]):
    def predict(self, items: list[Record]) -> list[str]: ...


class OfNamed(Generic[Named]):
    def predict(self, items: list[Named]) -> list[str]: ...


@pytest.mark.parametrize("kind", [OfModels, OfRecords])
def test_a_type_variable_bound_to_a_class_without_fields_is_left_open(kind: Any) -> None:
    with pytest.raises(TargetError, match="is not given"):
        assert of(jitney.deployment(type("Bare", (kind,), {}))).signature


def test_the_type_of_a_base_class_may_be_in_quotes() -> None:
    class Local(msgspec.Struct):
        x: int

    class Quoted(Base["Prompt", "list[Prompt]"]): ...

    class Nested(Base["Local", list["Prompt"]]): ...

    class Under(OfNamed): ...  # pyright: ignore[reportMissingTypeArgument]

    prices, nested = of(jitney.deployment(Quoted)).signature, of(jitney.deployment(Nested)).signature
    assert (prices.input.item, prices.output.item) == (Prompt, list[Prompt] | None)
    assert (nested.input.item, nested.output.item) == (Local, list[Prompt] | None)
    assert of(jitney.deployment(Under)).signature.input.item is Prompt


def test_the_type_variables_of_a_base_class_are_what_the_deployed_class_says() -> None:
    @jitney.deployment
    class Prices(Base[Prompt, str]): ...

    @jitney.deployment
    class Further(Swapped[int, Prompt]): ...

    @jitney.deployment
    class Under(Prices): ...

    @jitney.deployment
    class Texts(OfBound[Any]): ...

    taken = [of(kind).signature.input.item for kind in (Prices, Further, Under)]
    assert taken == [Prompt, Prompt, Prompt]
    returned = [of(kind).signature.output.item for kind in (Prices, Further, Under)]
    assert returned == [str | None, list[int] | None, str | None]
    assert of(Texts).signature.input.item is Any
    assert of(jitney.deployment(OfBound)).signature.input.item is str

    @jitney.deployment
    class Open(Base): ...  # pyright: ignore[reportMissingTypeArgument]

    with pytest.raises(TargetError, match=r"parameter `items` is list\[~Item\], and the type of ~Item is not given"):
        assert of(Open).signature

    @jitney.deployment
    class Between(Swapped): ...  # pyright: ignore[reportMissingTypeArgument]

    with pytest.raises(TargetError, match="the type of ~Answer is not given"):
        assert of(Between).signature

    @jitney.deployment
    def echo(items: list[Item]) -> list[Item]: ...

    assert of(echo).signature.input.kind == "object"


def test_a_wrong_declaration_is_refused_at_once() -> None:
    def decorate(**options: Any) -> None:
        @jitney.deployment(**options)
        def predict(texts: list[str]) -> list[str]: ...

        assert of(predict)

    wrong: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({"max_bach_size": 3}, ConfigError, "did you mean `max_batch_size`"),
        ({"exmples": []}, ConfigError, "did you mean `examples`"),
        ({"max_batch_size": "3"}, ConfigError, r"\(decorator\): `max_batch_size`: expected a whole number"),
        ({"name": "a b"}, ConfigError, "'a b' is not 1 to 64"),
        ({"name": "a/b"}, ConfigError, "is not 1 to 64"),
        ({"name": ".a"}, ConfigError, "not . first"),
        ({"name": "a" * 65}, ConfigError, "is not 1 to 64"),
        ({"name": "metrics"}, ConfigError, "belongs to the server"),
        ({"route": "v1/predict"}, ConfigError, "route='v1/predict' is not a path: write"),
        ({"route": "/a//b"}, ConfigError, "is not a path"),
        ({"route": 3}, ConfigError, "is not a path"),
        ({"examples": "hello"}, ConfigError, r"examples=\['hello'\]"),
        ({"group_by": "width"}, ConfigError, r"group_by=\('width',\)"),
    )
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            decorate(**options)
    with pytest.raises(TargetError, match="has no method `predict`"):
        jitney.deployment(type("Empty", (), {}))
    with pytest.raises(TargetError, match="for a class or a function"):
        jitney.deployment(3)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_constructor_arguments_are_checked_and_typed(tmp_path: Path) -> None:
    [found] = load_target(write(tmp_path, "embedder.py", EMBEDDER) + ":TextEmbedder")
    model = found.instantiate({"scale": SetText("2"), "path": SetText("3")}).__self__  # pyright: ignore[reportFunctionMemberAccess]
    assert (model.scale, model.path) == (2.0, "3")
    with pytest.raises(ConfigError, match=r"deployment `text_embedder`: .*did you mean `scale`"):
        found.instantiate({"scal": 1})
    with pytest.raises(ConfigError, match=r"--set text_embedder\.init\.scale: expected a number, got 'x'"):
        found.instantiate({"scale": SetText("x")})

    @jitney.deployment
    class Needs:
        def __init__(self, path: str) -> None: ...
        def predict(self, texts: list[str]) -> list[str]: ...

    with pytest.raises(ConfigError, match=r"argument `path` must be given: .*write --set \w+\.init\.path=VALUE, or"):
        of(Needs).instantiate({})
    with pytest.raises(ConfigError, match="is a function"):
        of(jitney.deployment(served)).instantiate({"a": 1})


def test_an_example_that_is_no_json_is_named() -> None:
    @jitney.deployment(examples=["a", object()])
    def predict(texts: list[str]) -> list[str]: ...

    found = of(predict)
    with pytest.raises(TargetError, match=r"`predict`: examples\[1\] cannot be written as JSON"):
        manifest("x.py", [(found, resolve(found.name, found.declared, Overrides()))])


def test_an_example_of_several_arrays_is_an_object_for_clients() -> None:
    pair = (np.zeros(2, np.float32), [1.0])

    @jitney.deployment(examples=[pair, list(pair), {"a": [0], "b": [1]}])
    def both(a: np.ndarray, b: np.ndarray) -> np.ndarray: ...

    found = of(both)
    [made] = manifest("x.py", [(found, resolve(found.name, found.declared, Overrides()))])["deployments"]
    assert made["examples"] == [{"a": [0, 0], "b": [1]}] * 2 + [{"a": [0], "b": [1]}]


def test_the_manifest_is_what_the_front_reads() -> None:
    @jitney.deployment(group_by=("width",), cost=jitney.length("prompt"), examples=[Prompt("a"), {"prompt": "b"}])
    class Paint:
        """Paints."""

        def predict(self, prompts: list[Prompt]) -> np.ndarray: ...

    found = of(Paint)
    with_init = resolve(
        found.name, found.declared, read_overrides(None, {}, ["paint.init.api_key=a", "paint.init.x=1"])
    )
    assert manifest("paint.py", [(found, with_init)])["deployments"][0]["init"] == {"api_key": "***", "x": "1"}
    made = manifest("paint.py", [(found, resolve(found.name, found.declared, Overrides()))])
    made = json.loads(json.dumps(made))
    [only] = made["deployments"]
    fields = ["name", "route", "doc", "options", "option_sources", "input", "output", "task", "group_by", "cost"]
    assert list(only) == [*fields, "examples"]
    assert only["route"] is None
    assert only["task"] is None
    assert only["input"]["kind"] == "object"
    assert only["input"]["arrays"] == []
    assert only["output"] == {
        "kind": "array",
        "arrays": [{"name": "", "dtype": "any", "shape": None, "is_stacked": True}],
        "schema": {
            "anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "array", "items": {}}],
            "description": "nested lists of any shape",
        },
    }
    assert only["group_by"][0] == {
        "source": {"field": {"name": "width", "types": ["int"], "default": 512, "literals": []}},
        "edges": None,
    }
    assert only["cost"] == {"source": {"length": {"of": "prompt", "unit": "characters"}}, "edges": None}
    assert only["examples"] == [{"prompt": "a", "width": 512}, {"prompt": "b"}]
    assert only["options"]["policy"] == "auto"
    assert only["options"]["devices"] == []
    assert only["option_sources"]["policy"] == "default"


def test_a_name_given_by_position_is_hinted_at() -> None:
    with pytest.raises(TargetError, match=r"did you mean @jitney\.deployment\(name='embed'\)\?"):
        jitney.deployment(cast("Any", "embed"))


def test_one_class_is_deployed_twice_by_subclasses_only() -> None:
    class Translator:
        language = "en"

        def predict(self, texts: list[str]) -> list[str]:
            return [f"{self.language}: {text}" for text in texts]

    class Fr(Translator):
        language = "fr"

    jitney.deployment(name="en")(Translator)
    with pytest.raises(TargetError, match=r"Translator is deployed already, as `en`; for `de` decorate a subclass"):
        jitney.deployment(name="de")(Translator)
    assert of(Translator).name == "en"
    assert of(jitney.deployment(name="en", max_batch_size=4)(Translator)).declared == {"max_batch_size": 4}
    jitney.deployment(Fr)
    assert [(of(kind).name, of(kind).obj) for kind in (Translator, Fr)] == [("en", Translator), ("fr", Fr)]
    assert of(Fr).instantiate({})(["a"]) == ["fr: a"]


def test_one_function_is_deployed_once() -> None:
    def upper(texts: list[str]) -> list[str]: ...

    jitney.deployment(upper)
    with pytest.raises(TargetError, match="upper is deployed already, as `upper`; for `other` decorate another"):
        jitney.deployment(name="other")(upper)


def test_what_other_servers_would_call_is_told_to_be_never_called() -> None:
    with pytest.warns(UserWarning, match=r"LitServed\.(setup|decode_request) is never called") as told:

        @jitney.deployment
        class LitServed:  # pyright: ignore[reportUnusedClass]
            def setup(self, device: str) -> None: ...
            def decode_request(self, request: object) -> object: ...
            def predict(self, items: list[str]) -> list[str]:
                return items

    assert len(told) == 2


@pytest.mark.filterwarnings("error")
def test_a_setup_that_an_init_may_call_is_nobody_elses_business() -> None:
    @jitney.deployment
    class Own:  # pyright: ignore[reportUnusedClass]
        def __init__(self) -> None:
            self.setup()

        def setup(self) -> None: ...
        def predict(self, items: list[str]) -> list[str]:
            return items


def test_what_is_imported_late_is_listed() -> None:
    assert {"run", "connect_sync", "deployment"} <= set(dir(jitney))


@pytest.mark.parametrize("what", [lambda: jitney.run(__file__), lambda: jitney.connect_sync("unix:/nowhere")])
def test_models_that_are_asked_for_too_early_say_what_to_write(what: Any) -> None:
    with pytest.raises(AttributeError, match=r"write `with … as models:`.*then models\.resize"):
        what().resize("x")


MODEL = """
import jitney, numpy, pydantic
class Photo(pydantic.BaseModel):
    pixels: KIND
@jitney.deployment
def grey(photos: list[Photo]) -> list[int]: ...
"""


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("jitney.Image", r"Photo.pixels: a pydantic model has no images .* take bytes \(jitney.Image\(bytes\)"),
        ("numpy.ndarray", "a pydantic model has no arrays as fields: make it a msgspec.Struct"),
    ],
)
def test_a_pydantic_model_with_pixels_says_what_to_write(tmp_path: Path, kind: str, advice: str) -> None:
    name = f"pixels_{kind.partition('.')[2].lower()}"
    with pytest.raises(TargetError, match=advice):
        load_target(write(tmp_path, f"{name}.py", MODEL.replace("KIND", kind)))
