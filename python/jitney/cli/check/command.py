"""Load a model here, without a server, and run its example inputs: the inputs, the answers and their times.

A TARGET is file.py, file.py:Name, package.module, package.module:Name or the name of a ready-made model.
"""

import argparse
import json
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO, cast

from jitney.cli.check import profile
from jitney.cli.check.answers import Answers, alike, show_answer, show_input
from jitney.cli.check.parts import Parts
from jitney.cli.options import add_layers, given_layers
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions, Resolved, resolve
from jitney.context import available_cores, enter, leave
from jitney.deployments.composed.composition import ComposedDeployment
from jitney.deployments.deployment import Deployment
from jitney.deployments.manifest import manifest
from jitney.deployments.targets import load_target
from jitney.devices import choose_device
from jitney.errors import ConfigError, JitneyError
from jitney.extension import core
from jitney.failures import load_failure_text, one_line
from jitney.front.targets import find_target
from jitney.worker.health import IdleCheck
from jitney.worker.process import set_threads
from jitney.worker.streams.whole import whole
from jitney.worker.warmup import alone, largest_that_fits, too_much

MEASURABLE_S = 1e-3
"""A shorter call does not show what batches gain."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the target and the layers of options."""
    parser.add_argument("target", metavar="TARGET", help="what to check")
    parser.add_argument("--device", help="what jitney.context().device says to the model, instead of its first device")
    parser.add_argument(
        "--profile", action="store_true", help="measure what batches of 1, 2, 4, … take, three times each, and draw it"
    )
    add_layers(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check every deployment of the target; returns 1 if one of them does not work."""
    try:
        pairs = _read(arguments)
        are_good = [_check(deployment, resolved, arguments) for deployment, resolved in pairs]
    except JitneyError as error:
        print(load_failure_text(error), file=sys.stderr, end="")
        print(f"jitney: {error}", file=sys.stderr)
        return 1
    return 0 if all(are_good) else 1


def _read(arguments: argparse.Namespace) -> list[tuple[Deployment, Resolved]]:
    target = find_target(arguments.target)
    overrides = given_layers(arguments)
    set_threads(available_cores(), os.environ)
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as a worker has it, which is started with `-m`
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        found = load_target(target)
    print(f"{arguments.target}: imported in {_time(perf_counter() - began)}")
    unknown = overrides.unknown_names(deployment.name for deployment in found)
    if unknown:
        raise ConfigError("; ".join(unknown))
    names = [deployment.name for deployment in found]
    overrides.check_flags(names, names[0])
    pairs = [
        (deployment, resolve(deployment.name, deployment.declared, overrides, deployment.init)) for deployment in found
    ]
    _check_as_served(manifest(target, pairs))
    return pairs


def _print_warning(  # noqa: PLR0913, PLR0917 - the parameters of `warnings.showwarning`
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of the import as the others of this command; a library's own kind stays as Python writes it."""
    if category is UserWarning:
        print(f"warning: {message}")
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr, end="")


def _check_as_served(manifest: Mapping[str, Any]) -> None:
    """Refuse what the server would refuse of the whole target: names, routes, options that do not fit together."""
    all_of_them = manifest["deployments"]
    names = {one.get("method", {}).get("deployment", one["name"]) for one in all_of_them}
    # What they use may be in another target.
    known = [{**one, "uses": [used for used in one.get("uses", ()) if used in names]} for one in all_of_them]
    try:
        core().check_manifest(json.dumps({**manifest, "deployments": known}))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check(deployment: Deployment, resolved: Resolved, arguments: argparse.Namespace) -> bool:
    print(f"{deployment.name}")
    if deployment.doc:
        print(textwrap.indent(textwrap.fill(deployment.doc, 100), "  "))
    _print_options(resolved)
    if isinstance(deployment, ComposedDeployment):
        kind, sentence = deployment.composition.kind, deployment.composition.sentence()
        print(f"  the front carries it out ({kind}): {sentence}")
        return True
    enter(deployment.name, 0, choose_device(arguments.device or next(iter(resolved.options.devices), None), 0))
    try:
        return _reported(deployment.name, "does not work", lambda: _load_and_try(deployment, resolved, arguments))
    finally:
        leave()


def _load_and_try(deployment: Deployment, resolved: Resolved, arguments: argparse.Namespace) -> bool:
    began = perf_counter()
    codecs = [Codec(each.signature, resolved.options) for each in deployment.served]
    model = deployment.load(resolved.init)
    print(f"  loaded in {_time(perf_counter() - began)}")

    def try_examples() -> bool:
        if deployment.uses:
            _print_uses(deployment, resolved)
            return True
        if arguments.profile and not any(each.examples for each in deployment.served):
            raise ConfigError("there is nothing to measure: --profile runs the examples; add examples=[…] to it")
        trials: list[Trial] = []
        for each, codec in zip(deployment.served, codecs, strict=True):
            parts, predict = Parts(), model.of(each.function_name).predict
            predict = whole(
                predict,
                codec,
                batched=resolved.options.batched,
                most_s=resolved.options.stream_timeout_s,
                most_bytes=resolved.options.max_answer_bytes,
                on_part=partial(_note, codec, parts),
            )
            trials.append(Trial(each, resolved.options, codec, predict, parts))
        return all([_try(trial, profile=arguments.profile) for trial in trials])

    # As in a worker: `check` while no batch runs, and `close` as the last call, whatever happened before.
    name, check, close = deployment.name, model.check, model.close
    is_good = _reported(name, "does not work", try_examples)
    if check is not None:
        is_good &= _reported(name, "does not work", lambda: _call_hook("check()", IdleCheck(check, 0.0).run))
    if close is not None:
        # The `close` of an `async def` model ends its event loop, also if the class defines none.
        shown = "close()" if hasattr(deployment.obj, "close") else ""
        is_good &= _reported(f"close() of {name}", "failed", lambda: _call_hook(shown, close))
    return is_good


def _print_uses(deployment: Deployment, resolved: Resolved) -> None:
    names = ", ".join(sorted({use.name for use in deployment.uses.values()}))
    print(f"  uses {names}: `jitney serve` runs its examples, with the workers of {names}")
    if resolved.options.replicas == 1 and any(use.waits for use in deployment.uses.values()):
        print(
            f"  warning: predict waits for {names}, and its one replica computes nothing meanwhile: set replicas=2 or "
            "more, or take jitney.uses in an `async def predict`"
        )


def _note(codec: Codec, parts: Parts, place: int, part: object) -> None:
    codec.validate_part(part)
    parts.add(place, part)


def _call_hook(shown: str, hook: Callable[[], object]) -> bool:
    began = perf_counter()
    hook()
    if shown:
        print(f"  {shown} returned after {_time(perf_counter() - began)}")
    return True


def _reported(who: str, failed: str, step: Callable[[], bool]) -> bool:
    """Return what a step returns. What it raises is printed with who `failed`, and the answer is False."""
    try:
        return step()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or _nobody_reads(error):
            raise
        print(load_failure_text(error), file=sys.stderr, end="")
        said = f": {error}" if isinstance(error, JitneyError) else f" {failed}: {one_line(error)}"
        print(f"jitney: {who}{said}", file=sys.stderr)
        return False


def _try(trial: "Trial", *, profile: bool) -> bool:
    if trial.deployment.method is not None:
        print(f"  {trial.deployment.name}")
    if not trial.deployment.examples:
        kind = "deployment" if trial.deployment.method is None else "method"
        print(f"  warning: no examples: nothing was run; add examples=[…] to @jitney.{kind}")
        return True
    is_good = trial.run()
    if is_good and profile:
        trial.profile()
    return is_good


def _nobody_reads(error: BaseException) -> bool:
    """Whether a print from here failed, as before `| head`; a pipe of the model's own breaks in another file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(error, BrokenPipeError) and trace is not None and trace.tb_frame.f_code.co_filename == __file__


def _print_options(resolved: Resolved) -> None:
    """Show what somebody has set; a dozen defaults would hide it."""
    options = resolved.options.to_dict()
    given = [name for name in options if resolved.sources[name] != "default"]
    init = {f"init.{name}": value for name, value in resolved.shown_init().items()}
    width = max(map(len, [*given, *init]), default=0)
    for name in given:
        print(f"  {name:{width}}  {_shown(options[name])} ({resolved.places[name]})")
    for name, value in init.items():
        print(f"  {name:{width}}  {value!r}")
    print(f"  {len(options) - len(given)} {'other ' if given else ''}options have their default")


def _shown(value: object) -> str:
    """As `--set` takes it."""
    if isinstance(value, list):
        return ",".join(map(str, cast("list[object]", value))) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.1f} µs"


@dataclass(frozen=True, slots=True)
class Trial:
    """Runs the examples of one loaded deployment."""

    deployment: Deployment
    options: DeploymentOptions
    codec: Codec
    predict: Callable[..., Any]
    parts: Parts
    """Of the last call."""

    def run(self) -> bool:
        """Run them alone and together, print, compare; False if an answer is not valid."""
        examples = self.deployment.examples
        single: list[tuple[Answers, float]] = []
        made: list[list[str]] = []
        for example in examples:
            single.append(alone(lambda example=example: self.call([example])))
            made.append(self.parts.lines(_time))
        again = alone(lambda: self.call(examples[:1]))
        is_good = True
        for example, parts, (answers, _) in zip(examples, made, single, strict=True):
            print(f"  in   {show_input(example)}")
            for line in parts:
                print(f"       {line}")
            print(f"  out  {show_answer(answers, 0)}")
            is_good &= not answers.errors
        print(f"  first call {_time(single[0][1])}, second call {_time(again[1])}")
        if self.options.batched and self.options.max_batch_size > 1:
            is_good &= self.together([answers for answers, _ in single], again[1])
        return is_good

    def together(self, single: Sequence[Answers], alone_s: float) -> bool:
        """Run a full batch, or the largest that fits, and compare its answers with those given alone."""
        examples = self.deployment.examples
        if not self.may_share_a_batch():
            examples = examples[:1]
        most = self.options.max_batch_size
        chosen = [number % len(examples) for number in range(most)]
        size, (answers, took_s) = largest_that_fits(
            lambda size: self.call([examples[number] for number in chosen[:size]]), most
        )
        if size < most:
            print(f"  warning: {too_much(self.options, size)}")
        if alone_s >= MEASURABLE_S:
            each = max(took_s / size, 1e-9)
            print(
                f"  a batch of {size} {_time(took_s)}, {_time(each)} each: "
                f"{alone_s / each:.1f} times as many per second as one by one"
            )
        if answers.errors:
            print(f"  in a batch: {next(iter(answers.errors.values()))}")
            return False
        different = [
            place for place, number in enumerate(chosen[:size]) if not alike(single[number], 0, answers, place)
        ]
        if different:
            print(
                f"  warning: {len(different)} of {size} answers in a batch differ from those given alone "
                "(by chance, or because of who else is in it):\n"
                f"    alone    {show_answer(single[chosen[different[0]]], 0)}\n"
                f"    batched  {show_answer(answers, different[0])}"
            )
        return True

    def profile(self) -> None:
        """Measure, draw and say what batches take."""
        if not self.options.batched:
            print("  profile: predict takes one item at a time, so there are no batches to measure")
            return
        # As the warm-up does: a mixture would be another one at each size, and need not belong to one group.
        example, *others = self.deployment.examples
        most = self.options.max_batch_size
        curve = profile.measure(lambda size: self.call([example] * size)[1], most)
        of_which = f" of the first example, {show_input(example)}" if others else ""
        print(f"  profile, the median of {profile.RUNS} runs of each size{of_which}")
        if curve[-1][0] < most:
            print(f"  {too_much(self.options, curve[-1][0])}")
        for row in (*profile.drawn(curve), *profile.summary_lines(curve)):
            print(row)

    def may_share_a_batch(self) -> bool:
        """Say whether any two examples may: group keys are computed by the front, so none may be declared."""
        arrays = self.deployment.signature.input.arrays
        return not self.deployment.group_by and all(
            array.shape is not None and None not in array.shape for array in arrays
        )

    def call(self, values: Sequence[object]) -> tuple[Answers, float]:
        """Predict these as one batch; returns the answers and the time that `predict` took."""
        decoded = self.codec.from_python(list(values))
        for index, error in decoded.errors:
            method = self.deployment.function_name
            raise ConfigError(f"the example {show_input(values[index])} is not what {method} takes: {error}")
        arguments = self.codec.arguments(decoded)
        self.parts.begin()
        began = perf_counter()
        output: Any = self.predict(*arguments)
        took_s = perf_counter() - began
        self.codec.validate(output, len(values))
        answers = Answers(len(values))
        self.codec.encode(output, decoded, None, answers.batch, answers.results)
        return answers, took_s
