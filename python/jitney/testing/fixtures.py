"""Deployments as pytest fixtures."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal

from jitney.deployments.composed.composition import Composed
from jitney.embedded.handles import SyncModels
from jitney.embedded.run import run_sync
from jitney.testing.inline import inline


def fixture(
    *targets: str | Callable[..., Any] | Composed,
    processes: bool = False,
    options: Mapping[str, object] | None = None,
    scope: Literal["session", "package", "module", "class", "function"] = "module",
) -> Any:
    """Return a pytest fixture that gives the models of these targets: assign it to a name at the top of a module.

    Without `processes` the deployments run as in `inline`, which is fast. With them they run as in `jitney.run_sync`:
    a real engine and a worker process per replica. `scope` is pytest's: how long the models live.
    """
    import pytest  # noqa: PLC0415 - only fixtures need it

    @pytest.fixture(scope=scope)
    def models() -> Generator[SyncModels]:
        engine = run_sync(*targets, options=options) if processes else inline(*targets, options=options)
        with engine as started:
            yield started

    return models
