"""`/openapi.json` is true: requests made from it, right and wrong ones, get no 5xx and no answer outside of it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from harness import Server, serving
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks


def no_fault_of_the_server(_context: Any, response: Any, _case: Any) -> None:
    """A deadline that the request itself asks for may pass; every other 5xx is a fault."""
    assert response.status_code < 500 or response.status_code == 504, response.text


described_by: Any = checks  # untyped beyond here
CHECKS: list[Any] = [
    no_fault_of_the_server,
    described_by.status_code_conformance,
    described_by.content_type_conformance,
    described_by.response_headers_conformance,
    described_by.response_schema_conformance,
]
EXAMPLES = 300 if os.environ.get("JITNEY_TEST_LONG") else 15
"""For each operation and each mode."""
# Without tuples: schemathesis rewrites `prefixItems` of answers to an older form, which it then refuses.
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
TARGETS = ("strict.py", "arrays.py", "embedders.py", "noop.py", "images.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, *TARGETS) as server:
        yield server


@pytest.fixture(scope="module")
def openai_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "chatting.py", "painting.py") as server:
        yield server


def described(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_made_from_the_schema_are_answered_as_it_says(server: Server, mode: GenerationMode) -> None:
    operations = [found.ok() for found in described(server).get_all_operations()]
    assert len(operations) > 15
    ask_all(operations, mode)
    assert server.post("/shout", "still well").status == 200


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_of_the_openai_api_are_answered_as_the_schema_says(
    openai_server: Server, mode: GenerationMode
) -> None:
    operations = [found.ok() for found in described(openai_server).get_all_operations()]
    operations = [operation for operation in operations if operation.path.startswith("/v1/")]
    assert len(operations) == 5
    ask_all(operations, mode)
    assert openai_server.post("/upper", "still well").status == 200


def ask_all(operations: list[Any], mode: GenerationMode) -> None:
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=SLOW,
            derandomize=True,
            database=None,
        )
        def ask(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        try:
            ask()
        except Unsatisfiable:  # a page without parameters cannot be asked wrongly
            assert operation.method == "get" and mode == GenerationMode.NEGATIVE, operation.label
