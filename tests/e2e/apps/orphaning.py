"""A model that leaves processes behind: each answer is the number of one whose parent has ended."""

import subprocess

import jitney


@jitney.deployment
def orphaning(seconds: list[float]) -> list[int]:
    return [leave(one) for one in seconds]


def leave(seconds: float) -> int:
    # In another session, so that it does not end with the group of its worker. The shell ends at once.
    script = f"setsid sleep {seconds} >/dev/null 2>&1 & echo $!"
    return int(subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout)
