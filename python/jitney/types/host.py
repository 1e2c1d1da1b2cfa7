"""Arrays of any library, on any device, as numpy has them on this machine."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from functools import lru_cache
from typing import Any, cast


@lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """Name a numpy dtype; numpy builds the name anew each time, which costs more than encoding a batch."""
    return str(dtype.name)


def on_host(value: Any) -> Any:
    """Return a numpy array of any dtype and layout, copied from the device if it is on one."""
    import numpy as np

    array = np.asarray(_to_numpy(value))
    return array.astype(np.float32) if dtype_name(array.dtype) == "bfloat16" else array


def _to_numpy(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        return value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    if kind.__module__.partition(".")[0] == "cupy":
        return value.get()
    if hasattr(kind, "__array__"):
        return value
    import numpy as np

    return np.from_dlpack(value)
