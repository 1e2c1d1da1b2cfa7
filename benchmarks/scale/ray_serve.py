"""Ray Serve with its defaults, and with the settings that its documentation advises for throughput."""

from collections.abc import Mapping
from pathlib import Path

from peers.catalog import SERVERS
from peers.environments import is_installed, python_of
from servers import HERE

DEFAULTS, FAST = "Ray Serve", "Ray Serve, fast settings"
APPS = HERE / "scale" / "served"


def settings(variant: str) -> Mapping[str, str]:
    """The variables of its environment."""
    flags = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"} if variant == FAST else {}
    return {"RAY_AUTH_MODE": "disabled", **flags}


def python() -> Path:
    """Where it is installed."""
    return python_of(SERVERS["ray"])


def why_not() -> str:
    """Say why it cannot be measured; empty if it can."""
    return "" if is_installed(SERVERS["ray"]) else "Ray Serve is not installed (make peers PEERS=ray)"
