"""List the ready-made models: a name in this list is a target for `jitney serve` and `jitney check`."""

import argparse

from jitney.models import READY_MADE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print the list; imports no model."""
    del arguments
    width = max(len(name) for name in READY_MADE)
    for model in READY_MADE.values():
        missing = model.missing
        state = f"missing {', '.join(missing)}: {model.install}" if missing else "installed"
        print(f"{model.name:{width}}  {model.task}")
        print(f"{'':{width}}  needs {', '.join(model.needs)}")
        print(f"{'':{width}}  {state}")
    return 0
