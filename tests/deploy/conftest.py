"""Tests of the files in `deploy/`. Those that build and boot containers need root: `make test-deploy` runs them."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# A server of the end-to-end tests stands behind the proxy.
sys.path.append(str(HERE.parent / "e2e"))

REAL = {"test_image.py", "test_booted_unit.py", "test_nginx.py", "test_schemas.py", "test_api_server.py"}
"""Files with tests of real parts."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents or item.path.name not in REAL:
            continue
        # The first one builds the image.
        item.add_marker(pytest.mark.timeout(3600))
        if not os.environ.get("JITNEY_TEST_DEPLOY"):
            item.add_marker(pytest.mark.skip(reason="builds and boots containers: `make test-deploy` runs it"))
