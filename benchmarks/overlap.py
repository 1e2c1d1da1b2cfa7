"""What decoding and encoding in parallel with `predict` are worth: the same load with and without, in turn.

`python benchmarks/overlap.py --pairs 5` prints for each load the ratio of requests/s (with / without) of each pair
and their median. A machine that does other work at the same time shifts single pairs, so read the spread too.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

APP = Path(__file__).parent / "apps" / "overlap.py"
LOADS = {
    "structs": ("structs", 96, None),
    "structs, users of one batch": ("structs", 32, None),
    "images in, 256 x 256": ("images_in", 48, (256, 256)),
    "images in, 640 x 480": ("images_in", 48, (640, 480)),
    "images in, 256 x 256, users of one batch": ("images_in", 16, (256, 256)),
    "images in, 256 x 256, model on the CPU": ("images_in_cpu", 48, (256, 256)),
    "images out, 512 x 512": ("images_out", 12, None),
    "minilm, 64 users": ("minilm", 64, None),
    "minilm, 256 users": ("minilm", 256, None),
}
"""Deployment, users who each have one request in flight, size of the JPEG that they send."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="", help="loads whose name contains this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, load in LOADS.items():
            if arguments.only in name:
                measure(name, load, Path(folder), arguments.pairs, arguments.seconds)


def measure(name: str, load: Any, folder: Path, pairs: int, seconds: float) -> None:
    """Print the ratios of one load."""
    rates: dict[str, list[float]] = {"never": [], "auto": []}
    for pair in range(pairs):
        for mode in sorted(rates, reverse=pair % 2 == 0):
            rates[mode].append(rate(load, mode, folder, seconds))
    ratios = [with_ / without for with_, without in zip(rates["auto"], rates["never"], strict=True)]
    spread = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{name}: median {statistics.median(ratios):.2f} ({spread}); without {rates['never']}", flush=True)


def rate(load: Any, mode: str, folder: Path, seconds: float) -> float:
    """Return the requests/s of one run."""
    deployment, users, size = load
    target = folder / "target.py"
    # A separate file, so that minilm too runs with the switch of the app.
    source = (
        "from jitney.models.minilm import MiniLM" if deployment == "minilm" else f"from overlap import {deployment}"
    )
    target.write_text(f"import overlap\n{source}\n")
    picture = folder / "picture.jpg"
    if size:
        picture.write_bytes(jpeg(*size))
    sent = ["--input", str(picture), "--content-type", "image/jpeg"] if size else []
    found = folder / "found.json"
    name = "MiniLM" if deployment == "minilm" else deployment
    subprocess.run(
        [
            *(sys.executable, "-m", "jitney", "bench", f"{target}:{name}", "--users", str(users)),
            *("--duration", str(seconds), "--warmup", "2", "--json", str(found), *sent),
        ],
        env=os.environ | {"OVERLAP": mode, "PYTHONPATH": str(APP.parent)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads(found.read_text())["summary"]["rate_per_s"]


def jpeg(width: int, height: int) -> bytes:
    """Make a picture with some noise in it."""
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([columns * 3, rows * 5, (rows + columns) * 2], -1)
    pixels = (pixels + np.random.default_rng(0).integers(0, 30, pixels.shape)) % 256
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


if __name__ == "__main__":
    main()
