"""A jitney server as seen from outside: its models, their examples and options, its metrics."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from jitney_bench.server.address import HTTP_OK, Address


@dataclass(frozen=True, slots=True)
class Site:
    """A jitney server, seen from outside."""

    address: Address
    api: Mapping[str, Any]

    @classmethod
    def look(cls, address: Address, is_ours: bool = False) -> "Site | None":
        """Find out whether this is a jitney server."""
        api = address.document("/openapi.json", is_ours)
        info = api.get("info")
        is_jitney = isinstance(info, dict) and cast("dict[str, Any]", info).get("title") == "jitney"
        return cls(address, api) if is_jitney else None

    @property
    def version(self) -> str:
        """Of the server."""
        return f"jitney {self.api['info']['version']}"

    def models(self) -> list[str]:
        """Names of the deployments."""
        many = {path[1:].removesuffix("/batch") for path in self.api["paths"] if path.endswith("/batch")}
        return [path[1:] for path in self.api["paths"] if path[1:] in many]

    def examples(self, model: str) -> list[object]:
        """Return the examples of a deployment as JSON has them."""
        content = self.api["paths"][f"/{model}"]["post"]["requestBody"]["content"]
        examples = content.get("application/json", {}).get("examples", {})
        return [example["value"] for example in examples.values()]

    def config(self, model: str) -> Mapping[str, Any]:
        """Return the options in force of a deployment."""
        config = self.address.document("/config")
        return config.get("deployments", {}).get(model, {}).get("options", {})

    def tensors(self, model: str, which: Literal["inputs", "outputs"]) -> list[Mapping[str, Any]]:
        """Return the tensors of a model as the Open Inference Protocol describes them."""
        return self.address.document(f"/v2/models/{model}").get(which, [])

    def octets(self, model: str, tensors: Sequence[str]) -> frozenset[str]:
        """Return those of the tensors of a model that are in base64 in its JSON: bytes and images."""
        content = self.api["paths"][f"/{model}"]["post"]["requestBody"]["content"]
        schema = self._followed(content.get("application/json", {}).get("schema", {}))
        parts = schema.get("properties", dict.fromkeys(tensors, schema))
        return frozenset(name for name in tensors if self._is_base64(parts.get(name, {})))

    def _followed(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema that a reference leads to; any other schema unchanged."""
        while (reference := schema.get("$ref")) is not None:
            schema = self.api
            for key in reference.removeprefix("#/").split("/"):
                schema = schema[key]
        return schema

    def _is_base64(self, schema: Mapping[str, Any]) -> bool:
        kinds = [self._followed(kind) for kind in (schema, *schema.get("anyOf", ()))]
        return any(kind.get("contentEncoding") == "base64" for kind in kinds)

    def metrics(self, model: str) -> dict[str, float]:
        """Return the metrics of a deployment, by name and further labels; empty if they cannot be had."""
        status, body = self.address.request("GET", "/metrics")
        return read_metrics(body.decode(), model) if status == HTTP_OK else {}


def read_metrics(text: str, model: str) -> dict[str, float]:
    """Read the lines of one deployment: `name` or `name{reason="full"}` to its value."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if match is None:
            continue
        labels = re.findall(r'(\w+)="([^"]*)"', match[2])
        if ("deployment", model) in labels:
            rest = ",".join(f'{name}="{value}"' for name, value in labels if name != "deployment")
            found[f"{match[1]}{{{rest}}}" if rest else match[1]] = float(match[3])
    return found
