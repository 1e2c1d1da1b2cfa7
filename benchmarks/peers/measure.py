"""One run: for each load all servers are started, tuned and checked; then measured in turn, again and again."""

import json
import os
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from peers import environments
from peers.catalog import SERVED, Cell, Place, Server
from peers.generator import Figures, Generator, Offer
from peers.loads import EVERY, STREAMS, is_right
from peers.plan import SAME, SAME_SHARE, TUNED_AT, WARM_RESTARTED_S, WARM_S, Plan, tuning_load
from peers.process import Process, free_port, send
from peers.report import Report, cell_named

CHECKED = 16
USED_UP = "the time was used up"
# A server that failed to start in so many loads is not tried in the others: each try takes minutes.
MAX_FAILED_STARTS = 2


class WrongAnswerError(Exception):
    """A server that answers wrongly is not measured."""


@dataclass
class Standing:
    """A started server and what is sent to it."""

    server: Server
    load: str
    cell: Cell
    process: Process
    offer: Offer

    def rest(self) -> None:
        """Stop or end the server until its next turn, so that it does not disturb the others."""
        if self.server.restarts:
            self.process.stop()
        else:
            self.process.hold()

    def go_on(self) -> None:
        if self.server.restarts:
            fresh = start(self.server, self.load, self.cell)
            self.process, self.offer = fresh.process, fresh.offer
        else:
            self.process.go_on()
            self.process.wait_ready(self.offer.requests[0], 15)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start(server: Server, load: str, cell: Cell) -> Standing:
    """Start a server with this model and these settings, and see that its answers are right."""
    place = Place(environments.python_of(server), free_port(), load)
    environment = {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(SERVED),
        # Triton's Python backend looks for libpython where the linker does.
        "LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR") or ""),
        "PATH": f"{place.bin}:{os.environ.get('PATH', '')}",
        "BENCH_MODEL": load,
        "BENCH_PORT": str(place.port),
        "BENCH_SETTINGS": json.dumps(cell.settings),
        **server.environment,
        **cell.environment,
    }
    process = Process(server.command(place, cell), place.port, environment, SERVED)
    requests = [server.request(load, item) for item in EVERY[load].items()]
    standing = Standing(server, load, cell, process, Offer(place.port, requests, is_streamed=load in STREAMS))
    try:
        process.wait_ready(requests[0], max(30, 8 * server.start_s))
        check(standing)
    except BaseException:
        process.stop()
        raise
    return standing


def check(standing: Standing) -> None:
    """Different items at once: each must get its own answer."""
    server, load = standing.server, standing.load
    items = [EVERY[load].distinct(number) for number in range(CHECKED)]

    def ask(item: Any) -> str | None:
        status, body, headers = send(standing.offer.port, server.request(load, item), 30)
        if status != 200:
            return f"{status} {body[:200].decode(errors='replace')}"
        return None if is_right(load, item, server.answer(load, body, headers)) else f"a wrong answer: {body[:100]!r}"

    with ThreadPoolExecutor(CHECKED) as pool:
        wrong = [found for found in pool.map(ask, items) if found]
    if wrong:
        raise WrongAnswerError(f"{len(wrong)} of {CHECKED} answers were not right; the first: {wrong[0]}")


class Run:
    """A plan that is carried out, into a report."""

    def __init__(self, plan: Plan, servers: list[Server], generator: Generator, report: Report) -> None:
        self.plan, self.servers, self.generator, self.report = plan, servers, generator, report
        self.failed_starts: dict[str, int] = {}

    def everything(self, end_s: float | None = None) -> None:
        """All loads; none is begun after `end_s` on the monotonic clock."""
        for load in self.plan.loads:
            if end_s is not None and time.monotonic() > end_s:
                self.report.data["method"]["notes"].append(f"no load `{load}`: {USED_UP}")
                self.report.save()
                continue
            self.one_load(load, end_s)

    def one_load(self, load: str, end_s: float | None) -> None:
        standing = self.start_all(load)
        try:
            for repetition in range(1, self.plan.repetitions + 1):
                if end_s is not None and time.monotonic() > end_s + 60:
                    self.report.data["method"]["notes"].append(
                        f"load `{load}`: {repetition - 1} repetitions, {USED_UP}"
                    )
                    break
                for points in self.plan.turns():
                    if points[0] in SAME and not self.report.capacities(load):
                        continue  # no capacity was measured
                    for one in list(standing):
                        if not self.one_turn(load, repetition, one, points):
                            standing.remove(one)
                            one.process.stop()
        finally:
            for one in standing:
                one.process.stop()

    def start_all(self, load: str) -> list[Standing]:
        """All servers of this load with their best settings, each standing still."""
        standing: list[Standing] = []
        for server in self.servers:
            if load not in server.loads:
                reason = server.missing.get(load, "its documented way of batching does not take this kind of body")
                self.report.add_problem(load, server.name, reason)
                continue
            if self.is_done(load, server):
                continue
            if self.failed_starts.get(server.name, 0) >= MAX_FAILED_STARTS:
                reason = f"not tried: it could not be started for {MAX_FAILED_STARTS} loads before"
                self.report.add_problem(load, server.name, reason)
                continue
            say(f"  {load}: {server.name}")
            try:
                one = start(server, load, self.best_cell(load, server))
            except Exception as error:  # whatever it is, it costs this server's row and nothing else
                self.failed_starts[server.name] = self.failed_starts.get(server.name, 0) + 1
                self.report.add_problem(load, server.name, str(error))
                say(f"    not measured: {error}")
                continue
            one.rest()
            standing.append(one)
        return standing

    def is_done(self, load: str, server: Server) -> bool:
        return all(
            self.report.has_sample(load, repetition, server.name, point)
            for repetition in range(1, self.plan.repetitions + 1)
            for point in self.plan.points
        )

    def best_cell(self, load: str, server: Server) -> Cell:
        """The settings with the most answers per second at one point."""
        if len(server.cells) == 1:
            return server.cells[0]
        load = tuning_load(self.plan, server, load)
        if found := self.report.chosen(load, server.name):
            return cell_named(server, found)
        rps: dict[str, float] = {}
        reasons: list[str] = []
        for cell in server.cells:
            try:
                rps[cell.name] = self.tried(server, load, cell)
            except Exception as error:  # whatever it is, it costs these settings and not the server
                reasons.append(f"{cell.name}: {error}")
                say(f"    {cell.name}: {error}")
                continue
            say(f"    {cell.name}: {rps[cell.name]:,.0f}/s")
        if not rps:
            raise WrongAnswerError("; ".join(reasons))
        best = max(rps, key=lambda name: rps[name])
        self.report.add_tuning(load, server.name, rps, best)
        if reasons:
            self.report.add_problem(load, server.name, "settings that could not be tried: " + "; ".join(reasons))
        return cell_named(server, best)

    def tried(self, server: Server, load: str, cell: Cell) -> float:
        """Answers per second with these settings; parts per second, if answers come in parts."""
        one = start(server, load, cell)
        try:
            self.measure(one, TUNED_AT, WARM_S, {})
            figures = self.measure(one, TUNED_AT, self.plan.tune_seconds, {})
            return figures.get("parts_s") or figures["rps"] or 0.0
        finally:
            one.process.stop()

    def one_turn(self, load: str, repetition: int, one: Standing, points: tuple[str, ...]) -> bool:
        """These points of one server, once; whether it can go on."""
        if all(self.report.has_sample(load, repetition, one.server.name, point) for point in points):
            return True
        done: dict[str, Figures] = {}
        try:
            one.go_on()
            self.measure(one, TUNED_AT, WARM_RESTARTED_S if one.server.restarts else WARM_S, {})
            for point in points:
                figures = done[point] = self.measure(one, point, self.plan.seconds, done)
                figures["memory_mb"] = one.process.memory_mb()
                self.report.add_sample(
                    {
                        "load": load,
                        "repetition": repetition,
                        "server": one.server.name,
                        "cell": one.cell.name,
                        "point": point,
                        "figures": figures,
                    }
                )
            # The queue of the overload must be empty before the server is stopped.
            one.process.wait_ready(one.offer.requests[0], 30)
        except Exception as error:
            self.report.add_problem(load, one.server.name, f"repetition {repetition}: {error}")
            say(f"    {one.server.name} is left out from here: {error}")
            return False
        one.rest()
        rates = ", ".join(f"{point} {figures['rps'] or 0:,.0f}/s" for point, figures in done.items())
        say(f"  {load} {repetition}/{self.plan.repetitions} {one.server.name}: {rates}")
        return True

    def measure(self, one: Standing, point: str, seconds: float, done: dict[str, Figures]) -> Figures:
        kind, _, number = point.partition(" ")
        if kind == "closed":
            return self.generator.closed(one.offer, int(number), seconds)
        if self.generator.open is None:
            raise ValueError(f"{self.generator.name} has no open loops; `{point}` cannot be in the plan")
        if point in SAME:
            rates = self.report.capacities(one.load)
            return self.generator.open(one.offer, SAME_SHARE * SAME[point](rates), seconds)
        capacity = max(figures["rps"] or 0.0 for name, figures in done.items() if name.startswith("closed"))
        return self.generator.open(one.offer, capacity * float(number.rstrip("%")) / 100, seconds)
