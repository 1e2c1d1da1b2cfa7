"""Clients that other programs generate from `/openapi.json` call every example."""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from harness import Server, serving

NODE = Path(__file__).resolve().parents[1] / "node"
DEPLOYMENTS = ["catalogue", "customers", "doubled", "drawings", "orders"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "nested.py") as server:
        yield server


def described(server: Server) -> Any:
    return server.get("/openapi.json").json()


def examples(server: Server) -> dict[str, Any]:
    """The first example of each deployment, by its name."""
    paths = described(server)["paths"]
    return {
        name: paths[f"/{name}"]["post"]["requestBody"]["content"]["application/json"]["examples"]["example_1"]["value"]
        for name in DEPLOYMENTS
    }


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        if isinstance(members.get("$ref"), str):
            yield members["$ref"]
        discriminator = cast("dict[str, dict[str, str]]", members.get("discriminator", {}))
        yield from discriminator.get("mapping", {}).values()
        for child in members.values():
            yield from references(child)
    if isinstance(node, list):
        for child in cast("list[Any]", node):
            yield from references(child)


def test_every_reference_leads_to_a_component(server: Server) -> None:
    document = described(server)
    found = set(references(document))
    # `catalogue` has a Product too, so the types of `orders` have its name in front.
    assert {"#/components/schemas/orders_Order", "#/components/schemas/Address"} <= found
    for reference in found:
        place = document
        for key in reference.removeprefix("#/").split("/"):
            assert key in place, f"{reference} leads nowhere"
            place = place[key]


def test_types_of_one_name_in_two_deployments_keep_their_fields(server: Server) -> None:
    document = described(server)

    def fields(name: str) -> list[str]:
        body = document["paths"][f"/{name}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        while "$ref" in body:
            body = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[-1]]
        return list(body["properties"])

    assert fields("orders") == ["name", "price"]
    assert fields("catalogue") == ["title"]


def test_a_python_client_is_generated_and_answered(server: Server, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(described(server)))
    command = [
        sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none",
        "--output-path", "generated_jitney_client",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Endpoint will not be generated" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    sys.path.insert(0, str(tmp_path))
    try:
        package: Any = importlib.import_module("generated_jitney_client")
        with package.Client(base_url=f"http://127.0.0.1:{server.port}", raise_on_unexpected_status=True) as client:
            # Not `doubled`: its body is a list or of another type, and for that this generator writes
            # `isinstance(body, list[float])`, which Python refuses.
            for name, example in examples(server).items():
                if name != "doubled":
                    call: Any = importlib.import_module(f"generated_jitney_client.api.deployments.{name}")
                    answered = call.sync_detailed(client=client, body=body_of(call, example))
                    assert answered.status_code == 200, (name, answered.content)
                    assert type(answered.parsed).__name__ != "Problem"
    finally:
        sys.path.remove(str(tmp_path))


def body_of(call: Any, example: Any) -> Any:
    """The example as the class that the generated function takes for JSON."""
    if not isinstance(example, dict):
        return example
    fields = cast("dict[str, Any]", example)
    for name in dir(call):
        from_dict: Any = getattr(getattr(call, name), "from_dict", None)
        if from_dict is not None:
            made: Any = from_dict(fields)
            if fields.keys() <= made.to_dict().keys() and not made.additional_properties:
                return made
    raise AssertionError(f"{call.__name__} has no class for {fields}")


def test_typescript_types_are_generated(server: Server, tmp_path: Path) -> None:
    tool = NODE / "node_modules/.bin/openapi-typescript"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs node, and the packages of tests/node: make node-packages")
    (tmp_path / "openapi.json").write_text(json.dumps(described(server)))
    ran = subprocess.run(
        [str(tool), "openapi.json", "-o", "api.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    types = (tmp_path / "api.ts").read_text()
    assert all(f"{name}: {{" in types or f'"/{name}"' in types for name in DEPLOYMENTS)
    assert "product: components" in types
