"""Finds out what is to be measured: which server, which model, by which protocol, with which inputs."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from jitney.config.option import unknown
from jitney.errors import ConfigError
from jitney.front.targets import find_target

from jitney_bench.measure import Subject
from jitney_bench.options import CLIENT_KEY
from jitney_bench.requests import inputs, protocols
from jitney_bench.requests.inputs import Item
from jitney_bench.server.address import Address
from jitney_bench.server.child import Child
from jitney_bench.server.site import Site

EXAMPLES = "the deployment's examples"
_NO_SCHEME = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d+(/.*)?")
"""An address as one writes it in a hurry; no class or function has a number for its name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for."""

    where: str
    protocol: str | None = None
    model: str | None = None
    items: int | None = None
    input: str | None = None
    content_type: str | None = None
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """May hold a key."""
    serve: Sequence[str] = ()
    """Further arguments of `jitney serve`."""
    is_streamed: bool = False
    """Whether answers come in parts."""

    @property
    def has_accept(self) -> bool:
        """Whether a header of the user says which media type is accepted."""
        return any(name == "accept" for name, _ in self.headers)

    @property
    def is_url(self) -> bool:
        """Whether somebody else has started the server."""
        return "://" in self.where

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if _NO_SCHEME.fullmatch(self.where):
            raise ConfigError(f"{self.where!r} is neither a TARGET nor a URL; did you mean http://{self.where}?")
        if self.items is not None and (self.protocol or "native") in protocols.STREAMS:
            raise ConfigError(
                f"--items {self.items}: the protocol {self.protocol or 'native'} takes one item per request; "
                "say --protocol batch"
            )
        if self.is_streamed and (self.protocol or "native") not in protocols.STREAMS:
            raise ConfigError(
                f"--stream: the protocol {self.protocol} answers as a whole; say --protocol "
                f"{', '.join(protocols.STREAMS)}"
            )
        if self.items is not None and self.items < 1:
            raise ConfigError(f"--items {self.items}: a request needs at least one item")
        if self.content_type is not None and self.input is None:
            raise ConfigError(f"--content-type {self.content_type} says what --input holds; there is no --input")
        if self.is_url and self.serve:
            raise ConfigError(
                f"{self.serve[0]} is an option of a TARGET that is started here, but {self.where} runs already: "
                "set it where that server is started"
            )


def read_key(file: str | None, environment: str | None) -> str | None:
    """Return the API key: the first line of a file, or what the environment holds."""
    if file is None:
        if environment is not None and not (environment.isascii() and environment.isprintable()):
            raise ConfigError(
                f"{CLIENT_KEY} holds a line break, or what is not ASCII; set it to the key and nothing else"
            )
        return environment or None
    try:
        lines = Path(file).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--key-file {file} cannot be read: {error}") from None
    if len(lines) != 1:
        raise ConfigError(f"--key-file {file} holds {len(lines)} words; it must hold one key and nothing else")
    if not (lines[0].isascii() and lines[0].isprintable()):
        raise ConfigError(f"--key-file {file} holds what is not ASCII; it must hold one key and nothing else")
    return lines[0]


@contextmanager
def subject(wanted: Wanted) -> Generator[tuple[Subject, str]]:
    """Give the subject, and where its inputs are from; a target is served for as long as this lasts."""
    wanted.check()
    if wanted.is_url:
        yield _found(Address.parse(wanted.where, wanted.headers), wanted, None)
        return
    find_target(wanted.where)
    with Child(wanted.where, wanted.serve) as child:
        yield _found(child.wait_ready(wanted.headers), wanted, child.pid)


def _found(address: Address, wanted: Wanted, pid: int | None) -> tuple[Subject, str]:
    site = Site.look(address, is_ours=pid is not None)
    if site is None:
        return _of_another(address, wanted, "it is not a jitney server"), str(wanted.input)
    models, route = site.models(), address.path.strip("/")
    if route and route not in models:
        subject = _of_another(address, wanted, _no_route(address, route, models))
        return replace(subject, site=site, model=wanted.model, pid=pid), str(wanted.input)
    name = wanted.model or route or (models[0] if len(models) == 1 else "")
    if not name:
        raise ConfigError(f"{wanted.where} has {', '.join(models)}: name one with --model")
    if name not in models:
        raise ConfigError(f"{wanted.where}: {unknown('deployment', name, models)}")
    if route and name != route:
        raise ConfigError(f"--model {name} contradicts {wanted.where}; leave one of them away")
    items, source = _items(wanted, site, name)
    requests = protocols.PROTOCOLS[wanted.protocol or "native"](_model(site, name, wanted), items, wanted.items or 1)
    if wanted.is_streamed:
        requests = protocols.streamed(requests, wanted.protocol or "native", wanted.has_accept)
    address = replace(address, headers=(*address.headers, *requests.headers))
    return Subject(address, requests, site, name, pid), source


def _no_route(address: Address, route: str, models: Sequence[str]) -> str:
    """Say what a path of a jitney server is that is not a deployment's, and how that is measured."""
    name = route.removesuffix("/batch")
    if name in models:
        return f"this is the route for many items of {name}: {address.url}/{name} --protocol batch"
    if route == "v1/embeddings":
        return f"this is a route of all deployments: {address.url} --model NAME --protocol openai"
    if f"/{route}" in (protocols.CHATS, protocols.COMPLETIONS):
        protocol = "chat" if f"/{route}" == protocols.CHATS else "completion"
        return f"this is a route of all deployments: {address.url} --model NAME --protocol {protocol}"
    if (found := re.fullmatch(r"v2/models/([^/]+)/infer", route)) is not None:
        return f"this is a route of all deployments: {address.url} --model {found[1]} --protocol oip"
    return f"{unknown('deployment', route, models)}; name one with --model or in the URL"


def _model(site: Site, name: str, wanted: Wanted) -> protocols.Model:
    if wanted.protocol != "oip":
        return protocols.Model(name)
    tensors = site.tensors(name, "inputs")
    return protocols.Model(
        name,
        tensors,
        is_batched=bool(site.config(name).get("batched", True)),
        octets=site.octets(name, [tensor["name"] for tensor in tensors]),
        has_binary_answers=any(tensor["datatype"] == "BYTES" for tensor in site.tensors(name, "outputs")),
    )


def _items(wanted: Wanted, site: Site, name: str) -> tuple[list[Item], str]:
    if wanted.input is not None:
        return inputs.read(wanted.input, wanted.content_type), wanted.input
    examples = site.examples(name)
    if not examples:
        raise ConfigError(f"{name} has no examples; add examples=[…] to @jitney.deployment, or say --input FILE")
    return inputs.of_documents(examples), EXAMPLES


def _of_another(address: Address, wanted: Wanted, why: str) -> Subject:
    """Measure whatever answers at that path: bodies are sent unchanged."""
    if wanted.protocol is not None:
        raise ConfigError(f"--protocol {wanted.protocol}: {wanted.where} is not a deployment's route: {why}")
    if wanted.input is None:
        raise ConfigError(f"{wanted.where}: {why}; say what to send there unchanged with --input FILE")
    items = inputs.read(wanted.input, wanted.content_type)
    requests = protocols.Requests(address.path, [(item.content_type, item.body) for item in items])
    if wanted.is_streamed:
        is_openai = address.path.partition("?")[0].endswith((protocols.CHATS, protocols.COMPLETIONS))
        accept = () if wanted.has_accept else (("accept", protocols.EVENTS),)
        requests = replace(requests, stream="openai" if is_openai else "other", headers=accept)
        address = replace(address, headers=(*address.headers, *accept))
    return Subject(address, requests)
