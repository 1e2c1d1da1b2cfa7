"""Finds the devices of this machine for `devices="auto"`, in the worker.

A torch that the target has imported is asked. Without it the driver is asked, and no library is imported.
"""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final

from jitney.config.options import AUTO

_DRIVER: Final = "libnvidia-ml.so.1"


def choose_device(device: str | None, replica: int) -> str | None:
    """Return the device of a replica: `auto` becomes one of those that are found, in turn."""
    if device != AUTO:
        return device
    devices = find_devices()
    return devices[replica % len(devices)]


def find_devices() -> list[str]:
    """Return the accelerators that this process may use, as torch names them; ["cpu"] if there is none."""
    torch = sys.modules.get("torch")
    if torch is None:
        count, has_metal = _visible(os.environ, _count_by_driver), _has_metal()
    else:
        count, has_metal = _ask_torch(torch)
    if count > 0:
        return [f"cuda:{index}" for index in range(count)]
    return ["mps"] if has_metal else ["cpu"]


def _ask_torch(torch: Any) -> tuple[int, bool]:
    """Return how many CUDA devices this torch has, and whether it has Apple's; it may be built without either."""
    count, has_metal = 0, False
    with suppress(Exception):
        count = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    with suppress(Exception):
        has_metal = bool(torch.backends.mps.is_available())
    return count, has_metal


def _has_metal() -> bool:
    is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return is_apple and find_spec("torch") is not None


def _visible(environ: Mapping[str, str], count: Callable[[], int]) -> int:
    """Return how many devices CUDA will show: those of CUDA_VISIBLE_DEVICES up to the first one that does not exist."""
    there = count()
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or there == 0:
        return there
    visible = 0
    for name in (part.strip() for part in named.split(",")):
        # Other names are UUIDs of devices, or of slices of one.
        exists = int(name) < there if name.isdecimal() else name.startswith(("GPU-", "MIG-"))
        if not exists:
            break
        visible += 1
    return visible


def _count_by_driver() -> int:
    """Count NVIDIA's devices through the driver's library: it makes no CUDA context and takes no memory of a device."""
    import ctypes  # noqa: PLC0415 - only a worker with devices="auto" needs it

    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    if driver.nvmlInit_v2() != 0:
        return 0
    try:
        count = ctypes.c_uint(0)
        return int(count.value) if driver.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else 0
    finally:
        driver.nvmlShutdown()
