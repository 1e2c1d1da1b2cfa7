"""What the Rust side of the load generator offers to Python; built by `crates/bench-binding`."""

from collections.abc import Callable, Sequence

def bench(plan: str, inputs: Sequence[tuple[str, bytes]], on_interval: Callable[[str], object]) -> str:
    """Load a server as the plan (JSON) says with inputs (content type, body), in turn; returns a run (JSON).

    `on_interval` sees each interval (JSON) as it ends. What it raises ends the run and is raised here, and so is
    KeyboardInterrupt. ValueError: the plan makes no sense; OSError: the server cannot be reached. Plan, interval and
    run are described in docs/design/0011. Releases the interpreter lock.
    """

def merge_histograms(encoded: Sequence[str]) -> str:
    """Merge what `latency_histogram_us` holds: JSON of [count, quantiles in milliseconds, curve]."""
