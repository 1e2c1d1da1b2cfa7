"""Load a model with requests and report how fast it answers: latency from the instant a request was due, and why.

A TARGET (file.py, package.module:Name, a ready-made model) is served for the time of the measurement; a URL is that of
a server that runs already: http://HOST:PORT/NAME. Durations are in seconds.
"""

import argparse
from importlib.util import find_spec
from typing import Final

from jitney.cli.options import add_layers
from jitney.errors import ConfigError

INSTALL: Final = (
    "in a checkout of jitney: pip install ./bench, or install the file jitney_bench-*.whl that `make wheels` has built"
)


def check_installed() -> None:
    """Raise ConfigError if the load generator, a separate distribution, is not installed."""
    if find_spec("jitney_bench") is None:
        raise ConfigError(f"jitney bench needs the package jitney-bench, which is not installed; {INSTALL}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to load, how, and what to write; nothing if the load generator is not installed."""
    if find_spec("jitney_bench") is None:
        return
    from jitney_bench import arguments  # noqa: PLC0415 - may not be installed

    arguments.add_arguments(parser)
    add_layers(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure or compare; returns 1 if too few requests were answered."""
    # An HTTP client and what it brings are 5 MB: `jitney serve` must not hold them for as long as it serves.
    from jitney_bench import command  # noqa: PLC0415 - see above

    return command.run(arguments)
