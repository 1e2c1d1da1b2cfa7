"""CPU time and memory of a process and its children."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Used:
    """What processes have used so far."""

    front_cpu_s: float
    cpu_s: float
    resident_mb: float


def used_by(pid: int) -> Used | None:
    """Look at a process and all that it started; None where there is no /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    family = [pid]
    for member in family:
        family += [child for child, fields in stats.items() if int(fields[1]) == member]
    cpu = [(int(stats[member][11]) + int(stats[member][12])) / ticks for member in family if member in stats]
    resident = sum(int(stats[member][21]) * page for member in family if member in stats)
    return Used(cpu[0], sum(cpu), resident / 2**20) if cpu else None
