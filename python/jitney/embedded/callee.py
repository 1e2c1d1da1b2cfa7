"""What a call needs of its deployment, whether it is awaited or blocks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from jitney.embedded.values import FAILED, Read, Write, exception, reader, writer
from jitney.errors import Draining, EngineFailed, InternalError, InvalidInput, RequestError

if TYPE_CHECKING:
    from jitney import _core
    from jitney.signature.annotations import Output


class Engine(Protocol):
    """What models are called through: the engine in this process, or the connection to another one."""

    is_of_worker: bool
    """Whether a model of the server calls, over the link of its worker."""

    def entrance(self, name: str) -> "_core.Entrance | None":
        """Return the way in to a deployment; None if there is none of this name."""
        ...

    def manifests(self) -> str:
        """Return the manifests of all deployments by name, as JSON."""
        ...

    def failure(self) -> str | None:
        """Return why the engine has ended, if it did so by itself."""
        ...

    def metrics(self) -> str | None:
        """Return all metrics in the Prometheus text format; None if they are another process's."""
        ...


class AskingEngine(Engine, Protocol):
    """What the models of a worker call others through."""

    def mailbox(self, event_loop: object) -> "_core.Mailbox":
        """Make the mailbox of an event loop."""
        ...

    def hold(self) -> None:
        """Let calls wait from now on until `flush`."""
        ...

    def flush(self) -> None:
        """Send the calls that wait, in one write."""
        ...


class Callee:
    """One deployment: how its items are written and its answers read. Async and synchronous models share it."""

    def __init__(self, name: str, engine: Engine, manifest: Mapping[str, Any], output: "Output | None") -> None:
        entrance = engine.entrance(name)
        if entrance is None:
            raise EngineFailed(f"{name} takes no more calls: its engine has ended")
        self.name: Final = name
        self.engine: Final = engine
        self.entrance: Final = entrance
        self.takes_images: Final[bool] = manifest["input"]["kind"] == "image"
        write = writer(manifest["input"])
        self.write: Final[Write] = _naming(name, write) if engine.is_of_worker else write
        self.read: Final[Read] = reader(manifest["output"], output)
        part = manifest["output"].get("part")
        self.read_part: Final[Read | None] = (
            None if part is None else reader(part, None if output is None else output.part)
        )
        """Reads one part of an answer; None if the model answers once."""

    def one(self, raw: Any) -> Any:
        """Read one answer; raise what it failed with."""
        if raw[0] == FAILED:
            raise self.error(raw[1])
        return self.read(raw)

    def each(self, raws: Sequence[Any]) -> list[Any]:
        """Read many answers; what failed is its exception."""
        return [self.error(raw[1]) if raw[0] == FAILED else self.read(raw) for raw in raws]

    def part_reader(self) -> Read:
        """Return what reads one part of an answer; TypeError if the model answers once."""
        if self.read_part is None:
            raise TypeError(
                f"the model {self.name!r} answers once: call models.{self.name}(item) in place of models.{self.name}"
                ".stream(item). A stream has a model whose `predict` yields parts, or that works in steps"
            )
        return self.read_part

    def error(self, failed: Any) -> Exception:
        """Return the exception of a failed item."""
        error = exception(failed)
        if self.engine.is_of_worker:
            error.asked = self.name
        # An engine that failed answers like one that shuts down.
        if isinstance(error, (InternalError, Draining)) and (why := self.engine.failure()) is not None:
            return EngineFailed(why)
        return error

    def write_each(
        self, items: Iterable[Any], *, return_exceptions: bool
    ) -> tuple[list[tuple[int, Any]], dict[int, RequestError]]:
        """Write many items. Return the errors of items that cannot be sent by their index, or raise the first one."""
        if isinstance(items, (str, bytes, bytearray, memoryview)):  # their items are letters and numbers
            kind = type(cast("object", items)).__name__
            raise TypeError(f"many takes a list of items, not a {kind}; one item alone: models.{self.name}(item)")
        written: list[tuple[int, Any]] = []
        refused: dict[int, RequestError] = {}
        for place, item in enumerate(items):
            try:
                written.append(self.write(item))
            except RequestError as error:
                if not return_exceptions:
                    raise
                refused[place] = error
        return written, refused


def _naming(name: str, write: Write) -> Write:
    """Return the same, whose refusals name the deployment: the client did not make this item."""

    def write_named(item: Any) -> tuple[int, Any]:
        try:
            return write(item)
        except InvalidInput as error:
            named = InvalidInput(f"{name}: {error.message}", status=error.status, field=error.field)
            named.asked = name
            raise named from None

    return write_named


def together(answers: list[Any], refused: dict[int, RequestError], *, return_exceptions: bool) -> list[Any]:
    """Put the exceptions of refused items among the answers, at their places, or raise the first exception."""
    for place, error in sorted(refused.items()):
        answers.insert(place, error)
    failed = None if return_exceptions else next((each for each in answers if isinstance(each, Exception)), None)
    if failed is not None:
        raise failed
    return answers
