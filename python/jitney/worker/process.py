"""The life of a worker: imports the target, sends its manifest, loads one replica, warms it up, and serves batches."""

import atexit
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TextIO, cast

from jitney.codecs import Codec
from jitney.config.layers import Overrides, Resolved, resolve
from jitney.context import enter, items, share_cores
from jitney.deployments.deployment import Deployment
from jitney.deployments.fresh import FOLDERS_VARIABLE, import_fresh
from jitney.deployments.manifest import manifest
from jitney.deployments.model import LoadedModel, RunsCoroutines, StepFunctions
from jitney.deployments.targets import failed_import, load_target
from jitney.devices import choose_device
from jitney.errors import ConfigError, JitneyError, TargetError, WorkerBroken
from jitney.failures import (
    NO_TERMINAL,
    FailureLog,
    load_failure_text,
    one_line,
    print_failure,
    print_warning,
    printable,
    relay_through_front,
)
from jitney.measures import Measuring
from jitney.worker.health import Health, IdleCheck
from jitney.worker.pipeline import Loop
from jitney.worker.replica import Methods, Replica
from jitney.worker.streams.whole import whole
from jitney.worker.warmup import most_s, still_answers, warm_up

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results

SPEC_VARIABLE = "JITNEY_WORKER_SPEC"
"""Set by `jitney serve` to the format in force: what workers print is in that of the front."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",  # tokenizers and polars; TOKENIZERS_PARALLELISM stays alone: a worker does not fork
)


@dataclass(frozen=True, slots=True)
class Spec:
    """What the front passes to a worker before the link is open."""

    address: str
    token: str
    worker: int
    target: str
    overrides: Overrides
    cpu_threads: int
    parent: int
    is_relayed: bool = False
    """The front reads what this worker prints, line by line."""
    logs_json: bool = False
    """What this worker logs is JSON, for a server's log in JSON or for the records of a program's log."""
    stacks: str = ""
    """The file for where the threads are, when the front asks for that."""
    is_further: bool = False
    """Whether another worker was started before it to import the same target, and reports why that fails."""
    id: str = ""
    """The number of a worker on another machine, for its front and its agent. It outlives its link."""
    options_hash: str = ""
    """What the front needs to know whether a worker that comes back has the options of its deployment."""
    path: Sequence[str] = ()
    """Folders of the program that started the engine; modules are looked for there after all others."""

    @classmethod
    def read(cls, text: str) -> "Spec":
        """Read the specification as the front writes it."""
        given: dict[str, Any] = json.loads(text)
        overrides = Overrides.from_json(json.dumps(given.pop("overrides")))
        return cls(overrides=overrides, **given)

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> "Spec":
        """Read the specification, and remove it: it holds a token, and user code sees the environment."""
        text = environ.pop(SPEC_VARIABLE, None)
        if text is None:
            raise JitneyError("this is what `jitney serve` starts for each replica; it does nothing on its own")
        return cls.read(text)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which replica this worker is to be."""

    deployment: str
    replica: int
    device: str | None
    cpu_threads: int
    most_items: int | None = None
    """More of the first example do not fit into a batch, by what they cost."""
    calls: dict[str, Any] | None = None
    """What it must know of the deployments that it uses."""


def main() -> int:
    """Be a worker until the front says that it is over; returns the exit code."""
    try:
        spec = Spec.take(os.environ)
    except JitneyError as error:
        print(f"jitney.worker: {error}", file=sys.stderr)
        return 2
    if spec.is_relayed:
        relay_through_front()
    outlive_signals()
    from jitney import _core  # noqa: PLC0415 - so that the message above needs no Rust

    _core.adopt_parent(spec.parent)
    for stream in (sys.stdout, sys.stderr):
        _buffer_by_line(stream)
    show_stacks_on_request(spec.stacks)
    set_threads(spec.cpu_threads, os.environ)
    share_cores(spec.cpu_threads)
    # Now that jitney itself has been imported: the files of the working directory are the target's to import.
    sys.path.insert(0, str(Path.cwd()))
    sys.path += [place for place in spec.path if place not in sys.path]
    watched = os.environ.pop(FOLDERS_VARIABLE, "")
    if watched:
        import_fresh(watched.split(os.pathsep))
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = _no_terminal
    link = _core.Link(spec.address, spec.token, id=spec.id)
    return Worker(link, spec, _core.Results, as_json=spec.logs_json).run()


def outlive_signals() -> None:
    """Leave it to the front what a signal to all processes means: it ends workers by its own message, or by SIGKILL.

    Ctrl-C goes to the whole group of the terminal, and systemd and container runtimes send SIGTERM to every process.
    SIGTERM is handled and not ignored, because what is ignored stays ignored in programs that the model starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _nothing)


def show_stacks_on_request(path: str) -> None:
    """Let SIGQUIT write where each thread is: the front asks for it before it kills a worker that hangs, and logs it.

    The handler needs no interpreter lock, so it works whatever the model is doing.
    """
    with suppress(OSError):  # a worker without it works as well
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(signal.SIGQUIT, file=descriptor, all_threads=True)


def _no_terminal(*arguments: object, **named: object) -> None:
    """Stand in for `breakpoint()`: a debugger would read the end of an input that is not there, and quit."""
    del arguments, named
    raise RuntimeError(f"breakpoint(): {NO_TERMINAL}")


def _nothing(number: int, frame: FrameType | None) -> None:
    del number, frame


def _buffer_by_line(stream: TextIO) -> None:
    reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)


def set_threads(threads: int, environ: MutableMapping[str, str]) -> None:
    """Set this worker's share of the cores for numeric libraries; the user's own values win."""
    for variable in THREAD_VARIABLES:
        environ.setdefault(variable, str(max(1, threads)))


class Runs(Protocol):
    """The loop of a worker."""

    def run(self) -> None:
        """Serve until the end."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is loaded and warm."""

    deployment: Deployment
    resolved: Resolved
    model: LoadedModel
    codecs: Sequence[Codec]


class Worker:
    """One life: import, manifest, load, warm up, loop."""

    def __init__(  # noqa: PLR0913 -- each is another part of the process
        self,
        link: "Link",
        spec: Spec,
        new_results: "Callable[[Batch, int], Results]",
        *,
        as_json: bool = False,
        is_inline: bool = False,
        at_exit: Callable[[Callable[[], None]], object] = atexit.register,
    ) -> None:
        self._link = link
        self._spec = spec
        self._new_results = new_results
        self._as_json = as_json
        self._is_inline = is_inline
        self._at_exit = at_exit
        self._close: Callable[[], None] | None = None
        self._check: IdleCheck | None = None
        self._stage = "importing"

    def run(self) -> int:
        """Live it; returns the exit code."""
        try:
            replica = self._prepare()
        except BaseException as error:
            self._fail(error)
            return 1
        if replica is None:
            return 0
        self._stage = "serving"
        measuring = Measuring(partial(self._link.send, "measured"))
        measuring.start()
        try:
            replica.run()
        except WorkerBroken as error:
            self._fail(error)
            return 1
        finally:
            measuring.end()
        if self._close is not None:
            # The exit handler that is registered last runs first, and `end_process` limits the time of all of them.
            self._at_exit(self._close)
        return 0

    def _import_or_leave(self) -> Mapping[str, tuple[Deployment, Resolved]] | None:
        """Import the target; None if another worker reports why that fails.

        The worker that was started first fails in the same way and reports it: once is enough. A further one reports
        only if the first one could import the target.
        """
        try:
            return self._import()
        except BaseException:
            if self._spec.is_further and self._assignment() is None:
                return None
            raise

    def _prepare(self) -> Runs | None:
        """Do everything up to `ready`; None if the front wants no replica after all."""
        found = self._import_or_leave()
        assignment = None if found is None else self._assignment()
        if found is None or assignment is None:
            return None
        share_cores(assignment.cpu_threads)
        device = choose_device(assignment.device, assignment.replica)
        enter(assignment.deployment, assignment.replica, device)
        if self._spec.is_relayed:
            relay_through_front(f"{assignment.deployment}/{assignment.replica}")
        if assignment.deployment not in found:
            raise TargetError(f"{self._spec.target} no longer holds a deployment {assignment.deployment!r}")
        deployment, resolved = found[assignment.deployment]
        if self._is_inline and (most := resolved.options.replica_bounds()[1]) > 1:
            raise ConfigError(f"--inline runs one replica, not {most}: leave replicas and max_replicas out")
        self._connect(deployment, assignment)
        self._enter("loading")
        began = perf_counter()
        codecs = [Codec(each.signature, resolved.options) for each in deployment.served]
        model = deployment.load(resolved.init)
        load_s = perf_counter() - began
        self._enter("warming")
        began = perf_counter()
        who = f"{assignment.deployment}/{assignment.replica}"
        most = min(resolved.options.max_batch_size, assignment.most_items or resolved.options.max_batch_size)
        tried = replace(resolved.options, max_batch_size=most)
        profile: dict[str, list[tuple[int, float]]] = {}
        for each, codec in zip(deployment.served, codecs, strict=True):
            name = each.function_name
            method = f"{name}: " if deployment.methods else ""
            answer = whole(
                model.of(name).predict,
                codec,
                batched=tried.batched,
                most_s=most_s(tried),
                most_bytes=tried.max_answer_bytes,
            )
            profile[name if deployment.methods else ""] = warm_up(
                answer,
                codec,
                tried,
                each.examples,
                lambda line, of=method: self._warn(who, of + line),
                method=name,
            )
        self._keep(assignment)  # before `ready`: a link that is lost right after it comes back
        self._send("ready", {"load_s": load_s, "warm_s": perf_counter() - began, "profile": profile})
        return self._loop(Loaded(deployment, resolved, model, codecs), who)

    def _connect(self, deployment: Deployment, assignment: Assignment) -> None:
        """Let the model call the deployments that it uses, over the link of this worker."""
        if assignment.calls is None:
            return
        from jitney import _core  # noqa: PLC0415 - most models use no other

        asks = _core.Asks(self._link, json.dumps(assignment.calls), items)
        for use in deployment.uses.values():
            use.connect(asks)

    def _loop(self, loaded: "Loaded", who: str) -> Runs:
        """Return the loop that serves a model which is loaded and warm."""
        deployment, model, options = loaded.deployment, loaded.model, loaded.resolved.options
        failures = FailureLog(who, as_json=self._as_json)
        self._at_exit(failures.end)
        if model.close is not None:
            self._close = partial(close_model, model.close, failures)
        if model.check is not None:
            self._check = IdleCheck(model.check, options.check_interval_s)
        health = Health()
        replicas: dict[str, Replica] = {}
        for each, codec in zip(deployment.served, loaded.codecs, strict=True):
            method = model.of(each.function_name)
            if each.examples and health.test is None:
                health.test = partial(still_answers, method.predict, codec, options, each.examples[0])
            replicas[each.function_name] = replica_class(codec)(
                self._link,
                method.predict,
                codec,
                options,
                self._new_results,
                failures=failures,
                health=health,
                coroutines=method.coroutines,
                method=each.function_name,
            )
        only = next(iter(replicas.values()))
        if model.coroutines is not None and not options.batched:
            return side_by_side(self._link, model.coroutines, replicas, options.batch_timeout_s, health, self._check)
        if model.steps is not None:
            return step_loop(self._link, model.steps, only, retry=options.retry, health=health, check=self._check)
        return Loop(self._link, Methods(replicas) if deployment.methods else only, check=self._check)

    def _import(self) -> Mapping[str, tuple[Deployment, Resolved]]:
        self._enter("importing")
        deployments = load_target(self._spec.target)
        names = [deployment.name for deployment in deployments]
        if self._is_inline and len(names) > 1:
            raise TargetError(
                f"--inline serves one deployment, and {self._spec.target} has {', '.join(names)}: "
                f"name one of them, as in {self._spec.target}:{names[0]}"
            )
        self._spec.overrides.check_flags(names, names[0])
        pairs = [
            (deployment, resolve(deployment.name, deployment.declared, self._spec.overrides, deployment.init))
            for deployment in deployments
        ]
        self._send("manifest", manifest(self._spec.target, pairs))
        return {deployment.name: (deployment, resolved) for deployment, resolved in pairs}

    def _assignment(self) -> Assignment | None:
        kind, body = self._link.receive()
        return Assignment(**json.loads(body)) if kind == "assign" else None

    def _keep(self, assignment: Assignment) -> None:
        """Keep this model when the link is lost, and come back; a worker of the front's machine ends."""
        if not self._spec.id:
            return
        loaded = {
            "target": self._spec.target,
            "deployment": assignment.deployment,
            "replica": assignment.replica,
            "options_hash": self._spec.options_hash,
        }
        self._link.keep(json.dumps(loaded).encode())

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self._send("progress", {"stage": stage})

    def _fail(self, error: BaseException) -> None:
        frames = load_failure_text(error)
        line = printable(error) if isinstance(error, JitneyError) else one_line(error)
        line = line.removeprefix(failed_import(self._spec.target))  # the front names target and stage
        if frames and self._as_json:
            print_failure(line, who=self._spec.target, source="", frames=frames, as_json=True)
        elif frames:  # the front prints the line; only the place is printed here
            print(frames, file=sys.stderr, end="", flush=True)
        self._send("failed", {"stage": self._stage, "error": line, "traceback": frames})

    def _warn(self, who: str, line: str) -> None:
        print_warning(line, who=who, as_json=self._as_json)

    def _send(self, kind: str, body: Any) -> None:
        self._link.send(kind, json.dumps(body).encode())


def replica_class(codec: Codec) -> type[Replica]:
    """Return the kind of replica that a model needs."""
    if not codec.has_parts:
        return Replica
    from jitney.worker.streams.replica import StreamReplica  # noqa: PLC0415 - only such models need it

    return StreamReplica


def step_loop(link: Any, functions: StepFunctions, replica: Replica, **given: Any) -> Runs:
    """Return the loop of a model that works in steps."""
    from jitney.worker.streams.loop import StepLoop  # noqa: PLC0415 - only such models need it

    return StepLoop(link, functions, cast("Any", replica), **given)


def side_by_side(  # noqa: PLR0913, PLR0917 -- each is another part of the worker
    link: Any,
    coroutines: RunsCoroutines,
    replicas: Mapping[str, Replica],
    batch_timeout_s: float,
    health: Health,
    check: IdleCheck | None,
) -> Runs:
    """Return the loop of a model whose items run side by side."""
    from jitney.worker.streams.tasks import TaskLoop  # noqa: PLC0415 - only such models need it

    return TaskLoop(link, coroutines, replicas, batch_timeout_s=batch_timeout_s, health=health, check=check)


def close_model(close: Callable[[], object], failures: FailureLog) -> None:
    """Call the `close` of a model whose worker ends. What it raises goes to the log and stops nothing."""
    try:
        close()
    except BaseException as error:
        failures.log("close", error)


LEAVES_WITHIN_S: Final = 3.0
"""Seconds that the model's `close` and exit handlers may take together."""


def end_process(code: int) -> NoReturn:
    """End now: threads that the model left behind must not hold up the exit, its exit handlers still run.

    They have three seconds: one that waits for processes of the model may wait without end.
    """
    alarm = threading.Timer(LEAVES_WITHIN_S, os._exit, (code,))
    alarm.daemon = True
    alarm.start()
    with suppress(BaseException):
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the model may have closed it
            stream.flush()
    os._exit(code)
