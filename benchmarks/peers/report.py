"""The file of one run: every figure is in it as soon as it was measured, so that a run can go on where it ended."""

import json
import os
import re
from pathlib import Path
from typing import Any

from peers.catalog import SERVERS, Cell, Server

OURS = "jitney"
KEYS = ("load", "repetition", "server", "point")


class Report:
    """What is known so far, in memory and on disk."""

    def __init__(self, path: Path) -> None:
        """Go on with the file if it is there."""
        self.path = path
        self.data: dict[str, Any] = {"method": {"notes": []}, "servers": {}, "tuning": [], "samples": []}
        if path.exists():
            self.data = json.loads(path.read_text())
        # What failed may work now; what still fails is noted again.
        self.data["problems"] = []

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".tmp")
        new.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(new, self.path)

    def has_sample(self, load: str, repetition: int, server: str, point: str) -> bool:
        wanted = (load, repetition, server, point)
        return any(tuple(sample[key] for key in KEYS) == wanted for sample in self.data["samples"])

    def capacities(self, load: str) -> list[float]:
        """Requests per second of each other server in the first repetition's closed loops: they do not change later."""
        best: dict[str, float] = {}
        for sample in self.data["samples"]:
            if (sample["load"], sample["repetition"]) == (load, 1) and sample["point"].startswith("closed"):
                best[sample["server"]] = max(best.get(sample["server"], 0.0), sample["figures"]["rps"] or 0.0)
        return [rps for server, rps in best.items() if server != OURS and rps > 0]

    def add_sample(self, sample: dict[str, Any]) -> None:
        """A turn that was cut short is measured again, and counts once."""
        same = [sample[key] for key in KEYS]
        self.data["samples"] = [old for old in self.data["samples"] if [old[key] for key in KEYS] != same]
        self.data["samples"].append(sample)
        self.save()

    def add_problem(self, load: str, server: str, reason: str) -> None:
        self.data["problems"].append({"load": load, "server": server, "reason": without_places(reason)})
        self.save()

    def set_server(self, server: Server, state: str, version: str, reason: str = "") -> None:
        found = {"version": version, "state": state, "reason": without_places(reason), "source": server.source}
        self.data["servers"][server.name] = {"title": server.title, **found}
        self.save()

    def chosen(self, load: str, server: str) -> str | None:
        """The name of the cell that won, if this was tuned."""
        rows = (row for row in self.data["tuning"] if (row["load"], row["server"]) == (load, server))
        return next((row["cell"] for row in rows if row["is_chosen"]), None)

    def add_tuning(self, load: str, server: str, rps: dict[str, float], best: str) -> None:
        self.data["tuning"] = [row for row in self.data["tuning"] if (row["load"], row["server"]) != (load, server)]
        for cell, found in rps.items():
            row = {"load": load, "server": server, "cell": cell, "rps": found, "is_chosen": cell == best}
            self.data["tuning"].append(row)
        self.save()

    def take_tuning(self, other: Path) -> None:
        """What an earlier run found to be each server's best settings, as far as those settings still exist."""
        for row in json.loads(other.read_text())["tuning"]:
            server = SERVERS.get(row["server"])
            known = server is not None and row["cell"] in {cell.name for cell in server.cells}
            if known and not any(
                (mine["load"], mine["server"], mine["cell"]) == (row["load"], row["server"], row["cell"])
                for mine in self.data["tuning"]
            ):
                self.data["tuning"].append(row)

    def tuned(self) -> frozenset[tuple[str, str]]:
        return frozenset((row["load"], row["server"]) for row in self.data["tuning"] if row["is_chosen"])

    def close(self) -> None:
        """A server that was installed and has no figure at all did not start; what it said first is the reason."""
        measured = {sample["server"] for sample in self.data["samples"]}
        for name, server in self.data["servers"].items():
            reasons = [problem["reason"] for problem in self.data["problems"] if problem["server"] == name]
            if server["state"] == "measured" and name not in measured:
                server["state"], server["reason"] = "does not start", reasons[0] if reasons else "no load was measured"
        self.save()


def cell_named(server: Server, name: str) -> Cell:
    return next(cell for cell in server.cells if cell.name == name)


def without_places(reason: str) -> str:
    """Leave out where an environment lies: the file is for others too."""
    return re.sub(r"/[^\s\"']*/site-packages/", "", reason)
