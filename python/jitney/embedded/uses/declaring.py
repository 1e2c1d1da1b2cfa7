"""`jitney.uses`: a model calls other deployments of its server."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jitney.deployments.classes import deployment_of
from jitney.deployments.composed.composition import Composed
from jitney.embedded.callee import AskingEngine
from jitney.embedded.handles import Models, SyncModels
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.types.uses import Use

if TYPE_CHECKING:
    from jitney import _core


class _AwaitedUse(Use):
    def __init__(self, target: str | Callable[..., Any] | Composed) -> None:
        super().__init__(target, _name(target), waits=False)

    def model(self, asks: Any) -> object:
        models: Any = Models(asks, AskMailboxes(asks))
        return models[self.target]


class _WaitingUse(Use):
    def __init__(self, target: str | Callable[..., Any] | Composed) -> None:
        super().__init__(target, _name(target), waits=True)

    def model(self, asks: Any) -> object:
        models: Any = SyncModels(asks)
        return models[self.target]


def _name(target: str | Callable[..., Any] | Composed) -> str:
    return target if isinstance(target, str) else deployment_of(target).name


class AskMailboxes(LoopMailboxes):
    """Mailboxes of event loops in a worker. All calls that a loop makes in one turn leave in one write."""

    def __init__(self, asks: AskingEngine) -> None:
        super().__init__(asks.mailbox)
        self._asks = asks
        self._is_held = False

    def mailbox(self) -> "_core.Mailbox":
        """Return the mailbox of the running loop, which is about to call."""
        if not self._is_held:
            self._is_held = True
            self._asks.hold()
            asyncio.get_running_loop().call_soon(self._flush)
        return super().mailbox()

    def _flush(self) -> None:
        self._is_held = False
        self._asks.flush()


if TYPE_CHECKING:
    # The same types as those of `models[Class]`.
    def _models() -> tuple[Models, SyncModels]: ...

    uses = _models()[0].__getitem__
    uses_sync = _models()[1].__getitem__
else:

    def uses(target: str | Callable[..., Any] | Composed) -> Use:
        """Let `async def predict` call another deployment of the server: `embedder = jitney.uses(Embedder)` in a class.

        `target` is a class or function with `@jitney.deployment`, what `jitney.configure` returns, or the name of a
        deployment. `await self.embedder(item)`, `.many(items)` and `.stream(item)` are those of `jitney.run`. The
        calls have the deadline, the priority and the request id of the item for which they are made, and end with it.
        """
        return _AwaitedUse(target)

    def uses_sync(target: str | Callable[..., Any] | Composed) -> Use:
        """Do as `uses` does, for a `predict` that is not `async def`: `self.embedder.many(items)` waits."""
        return _WaitingUse(target)
