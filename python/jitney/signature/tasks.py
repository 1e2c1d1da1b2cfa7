"""What a deployment that says its task must take and return, so that the routes of well-known APIs can call it."""

from typing import Any, Final, get_args, get_origin

from jitney.config.option import unknown
from jitney.errors import TargetError
from jitney.signature.annotations import Signature
from jitney.signature.fields import Field, alternatives, struct_fields
from jitney.signature.hints import show, strip

TASKS: Final = ("embedding", "chat", "completion", "image")
_NEVER_SENT: Final = {
    "embedding": ("model", "encoding_format"),
    "chat": ("model", "stream", "stream_options", "n"),
    "completion": ("model", "stream", "stream_options", "n"),
    "image": ("model", "stream", "response_format", "n"),
}
"""Fields of the API that are not handed on to a deployment; all others that it declares are."""

_RETURNS: Final = "`predict` returns jitney.Embeddings(vectors, tokens): n vectors, and how many tokens each text had"
_ANSWERS: Final = {
    "text": "the model writes text: annotate str, or jitney.Step[str] for parts",
    "image": (
        "the model makes images: annotate jitney.Image, or jitney.Step[jitney.Image, jitney.Image] for previews and "
        "jitney.End(answer=...)"
    ),
}
"""What a model of a task returns, by the kind of its answers."""
_TAKES: Final = {
    "embedding": (
        "`predict` takes list[str], or a list of a struct with the field `input` (str, or str | list[int] if it takes "
        "tokens) and, if it takes them, `dimensions` (int | None = None)"
    ),
    "chat": "an item is jitney.Chat, a struct that inherits from it, or a struct with the field `messages`",
    "completion": (
        "an item is str, or a struct with the field `prompt` (str, or str | list[int] if it takes tokens) and others "
        "such as `max_tokens`"
    ),
    "image": "an item is str, or a struct with the field `prompt` and others such as `width` and `height`",
}
_INPUT: Final = {"embedding": "input", "chat": "messages", "completion": "prompt", "image": "prompt"}
"""The field that has what is to be computed."""


def check_name(name: str, task: object) -> None:
    """Refuse what is not a task."""
    if task is not None and task not in TASKS:
        raise TargetError(f"deployment `{name}`: {unknown('task', str(task), TASKS)}")


def compile_task(name: str, task: str | None, signature: Signature, *, batched: bool) -> dict[str, Any] | None:
    """Say what the front may ask for, as the manifest has it; TargetError if `predict` cannot do its task."""
    if task is None:
        return None
    where = f'deployment `{name}`: task="{task}"'
    if task == "embedding":
        _check_vectors(where, signature, batched=batched)
    else:
        _check_answer(where, "image" if task == "image" else "text", signature)
    if signature.input.kind == "text" and task != "chat":
        fields: dict[str, Field] = {}
    else:
        fields = _fields(where, task, signature)
    if task in ("chat", "image"):
        return {"kind": task}
    takes_tokens = bool(fields) and _takes_tokens(where, fields[_INPUT[task]])
    if task == "completion":
        return {"kind": task, "takes_tokens": takes_tokens}
    takes_dimensions = "dimensions" in fields and _takes_dimensions(where, fields["dimensions"])
    return {"kind": task, "takes_tokens": takes_tokens, "takes_dimensions": takes_dimensions}


def _check_vectors(where: str, signature: Signature, *, batched: bool) -> None:
    if not batched:
        raise TargetError(f"{where} needs a `predict` that takes a batch, not batched=False")
    if not signature.output.counts_tokens:
        raise TargetError(f"{where}: {_RETURNS}; annotate it as `-> jitney.Embeddings`")


def _check_answer(where: str, kind: str, signature: Signature) -> None:
    """Refuse a model whose parts or whole answers are of another kind."""
    output = signature.output
    part = output.part or output
    if (part.kind, output.kind) == (kind, kind):
        return
    got = f"parts are {part.kind}" if part.kind != kind else f"the whole answer is {output.kind}"
    raise TargetError(f"{where}: {_ANSWERS[kind]}; here {got}")


def _fields(where: str, task: str, signature: Signature) -> dict[str, Field]:
    if signature.input.kind != "object":
        raise TargetError(f"{where}: {_TAKES[task]}; here it takes {signature.input.kind}")
    fields = {field.wire_name: field for field in struct_fields(where, signature.input.item)}
    if _INPUT[task] not in fields:
        raise TargetError(f"{where}: {_TAKES[task]}; here the fields are {', '.join(fields)}")
    for own in _NEVER_SENT[task]:
        if own in fields and not fields[own].has_default:
            raise TargetError(f"{where}: the field `{own}` needs a default: clients of the API cannot set it")
    return fields


def _takes_tokens(where: str, field: Field) -> bool:
    kinds = alternatives(field.annotation)
    lists = [kind for kind in kinds if get_origin(kind) is list and get_args(kind) == (int,)]
    if str not in map(strip, kinds) or len(kinds) != 1 + len(lists):
        name = field.wire_name
        raise TargetError(f"{where}: `{name}` is {show(field.annotation)}; it is str, or str | list[int]")
    return bool(lists)


def _takes_dimensions(where: str, field: Field) -> bool:
    if set(map(strip, alternatives(field.annotation))) == {int, type(None)} and field.default is None:
        return True
    raise TargetError(f"{where}: `dimensions` is {show(field.annotation)}; it is int | None = None")
