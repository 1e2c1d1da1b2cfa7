"""Items as requests of each protocol: the paths and bodies that clients of that protocol send."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from jitney.errors import ConfigError

from jitney_bench.requests.inputs import JSON, OCTETS, Item


@dataclass(frozen=True, slots=True)
class Requests:
    """Where to send, and each body with its type."""

    path: str
    bodies: Sequence[tuple[str, bytes]]
    items_per_request: int = 1
    headers: Sequence[tuple[str, str]] = ()
    """Of every request."""
    stream: str | None = None
    """How answers come in parts: a dialect of the load generator (`native`, `openai`, `other`). None: as a whole."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a protocol must know of the model that it sends to."""

    name: str
    tensors: Sequence[Mapping[str, Any]] = ()
    """`inputs` of the model's metadata in the Open Inference Protocol."""
    is_batched: bool = True
    octets: frozenset[str] = frozenset()
    """Those of the tensors that are bytes or images: text in base64 elsewhere, unencoded in this protocol."""
    has_binary_answers: bool = False
    """Whether its answers may hold what JSON cannot."""


def native(model: Model, items: Sequence[Item], _: int) -> Requests:
    """One item per request, unchanged."""
    return Requests(f"/{model.name}", [(item.content_type, item.body) for item in items])


def batch(model: Model, items: Sequence[Item], size: int) -> Requests:
    """Send lists of items."""
    return Requests(f"/{model.name}/batch", [_json(documents) for documents in _groups(items, size)], size)


def openai(model: Model, items: Sequence[Item], size: int) -> Requests:
    """Embeddings as OpenAI's clients ask for them."""
    bodies = [_json(_embeddings(model, documents)) for documents in _groups(items, size)]
    return Requests("/v1/embeddings", bodies, size)


def oip(model: Model, items: Sequence[Item], size: int) -> Requests:
    """Tensors in JSON, the batch first; bytes and images behind the JSON, as only there they fit."""
    if not model.is_batched and size > 1:
        raise ConfigError(f"{model.name} takes one item at a time (batched=False); leave --items {size} away")
    path = f"/v2/models/{model.name}/infer"
    inferences = [_tensors(model, documents) for documents in _groups(items, size)]
    asked = {"parameters": {"binary_data_output": True}} if model.has_binary_answers else {}
    bodies = [_json({"inputs": tensors, **asked}) for tensors, _ in inferences]
    if not any(binary for _, binary in inferences):
        return Requests(path, bodies, size)
    # A header says how long the JSON is, and all requests have the same headers: so blanks make all as long.
    width = max(len(head) for _, head in bodies)
    bodies = [(OCTETS, head.ljust(width) + binary) for (_, head), (_, binary) in zip(bodies, inferences, strict=True)]
    return Requests(path, bodies, size, (("inference-header-content-length", str(width)),))


def chat(model: Model, items: Sequence[Item], _: int) -> Requests:
    """Chats as OpenAI's clients send them; a text is what a user says."""

    def fields(text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    return Requests(CHATS, [_json(_generation(model, item.document(), fields)) for item in items])


def completion(model: Model, items: Sequence[Item], _: int) -> Requests:
    """Prompts as OpenAI's clients send them."""
    bodies = [_json(_generation(model, item.document(), lambda text: {"prompt": text})) for item in items]
    return Requests(COMPLETIONS, bodies)


def streamed(requests: Requests, protocol: str, has_accept: bool) -> Requests:
    """Ask for the same answers in parts. `has_accept`: a header of the user names the media type."""
    accept = () if has_accept else (("accept", EVENTS),)
    requests = replace(requests, stream=STREAMS[protocol], headers=(*requests.headers, *accept))
    if protocol == "native":
        return requests
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    return replace(requests, bodies=[_json(json.loads(body) | asked) for _, body in requests.bodies])


EVENTS = "text/event-stream"
CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
STREAMS: Mapping[str, str] = {"native": "native", "chat": "openai", "completion": "openai"}
"""Protocols whose answers may come in parts, and how."""
PROTOCOLS: Mapping[str, Callable[[Model, Sequence[Item], int], Requests]] = {
    "native": native,
    "batch": batch,
    "openai": openai,
    "chat": chat,
    "completion": completion,
    "oip": oip,
}


def _json(document: object) -> tuple[str, bytes]:
    return JSON, json.dumps(document, ensure_ascii=False).encode()


def _groups(items: Sequence[Item], size: int) -> list[list[Any]]:
    """Put `size` items into each request; the last one is filled up from the beginning."""
    documents = [item.document() for item in items]
    starts = range(0, len(documents), size)
    return [[documents[(start + place) % len(documents)] for place in range(size)] for start in starts]


def _embeddings(model: Model, documents: list[Any]) -> dict[str, Any]:
    """Structs with a field `input` say more than their text, so they travel alone."""
    if all(isinstance(document, dict) for document in documents):
        (fields, *more) = cast("list[dict[str, Any]]", documents)
        if more:
            raise ConfigError("the items are objects: OpenAI's API takes them one by one, so leave --items away")
        return {"model": model.name, **fields}
    return {"model": model.name, "input": documents if len(documents) > 1 else documents[0]}


def _generation(model: Model, document: Any, fields: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the body for one item: a struct has the fields of the API, and a text is its main field."""
    if isinstance(document, str):
        return {"model": model.name, **fields(document)}
    if isinstance(document, dict):
        return {"model": model.name, **cast("dict[str, Any]", document)}
    raise ConfigError(f"an item is neither a text nor an object of fields, but {json.dumps(document)[:100]}")


def _tensors(model: Model, documents: list[Any]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the tensors of one request as its JSON has them, and the bytes that follow the JSON."""
    tensors: list[dict[str, Any]] = []
    binary = b""
    for tensor in model.tensors:
        name, datatype = tensor["name"], tensor["datatype"]
        values = [_part(document, name, len(model.tensors)) for document in documents]
        if any(value is None for value in values):
            continue  # a field with a default may be left out
        if model.is_batched:
            shape, data = [len(values), *(_shape(values[0]) or [1])], values
        else:
            shape, data = _shape(values[0]) or [1], values[0]
        described = {"name": name, "datatype": datatype, "shape": shape}
        if name in model.octets:
            elements = b"".join(_element(name, value) for value in values)
            tensors.append({**described, "parameters": {"binary_data_size": len(elements)}})
            binary += elements
        else:
            tensors.append({**described, "data": data})
    return tensors, binary


def _element(name: str, value: object) -> bytes:
    """Return bytes as an element of a tensor: behind their length."""
    try:
        octets = base64.b64decode(cast("str", value), validate=True)
    except (TypeError, ValueError):
        raise ConfigError(f"{name!r} takes bytes, but an item has no base64 for it") from None
    return len(octets).to_bytes(4, "little") + octets


def _part(document: Any, name: str, tensors: int) -> Any:
    if isinstance(document, dict):
        return cast("dict[str, Any]", document).get(name)
    if tensors == 1:
        return document
    raise ConfigError(f"an item is not an object, but the model has {tensors} inputs; {name!r} has no value")


def _shape(value: Any) -> list[int]:
    """Return the lengths along each axis of nested lists."""
    shape: list[int] = []
    while isinstance(value, list):
        axis = cast("list[Any]", value)
        shape.append(len(axis))
        value = axis[0] if axis else None
    return shape
