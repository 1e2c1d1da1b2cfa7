"""Whether a batch was too large for the memory of its device, and what to let go of before smaller parts are tried."""

import gc
import re
import sys
import traceback
from typing import Any, Final

from jitney.errors import OutOfMemory

_TYPE_NAME: Final = "OutOfMemoryError"
"""What torch and cupy call theirs; neither is imported for it."""
_SAID: Final = re.compile(
    r"out of memory|DefaultCPUAllocator|failed to allocate (memory|\d+ bytes)|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED|std::bad_alloc",
    re.IGNORECASE,
)
"""What libraries say that have no type for it: torch on a processor and before 1.13, onnxruntime, JAX, TensorFlow."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this was raised for want of memory, so that a smaller batch may do. Never raises."""
    if isinstance(error, (MemoryError, OutOfMemory)):
        return True
    if not isinstance(error, Exception):
        return False
    if any(kind.__name__ == _TYPE_NAME for kind in type(error).__mro__):
        return True
    is_of_library = isinstance(error, RuntimeError) or type(error).__module__.startswith(("onnxruntime", "jaxlib"))
    try:
        return is_of_library and _SAID.search(str(error)) is not None
    except Exception:
        return False


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and its causes: a library's own error is often among them."""
    chain: list[BaseException] = []
    left = [error]
    while left:
        each = left.pop()
        if not any(each is known for known in chain):
            chain.append(each)
            left += [below for below in (each.__cause__, each.__context__) if below is not None]
    return chain


def let_go(error: BaseException) -> None:
    """Free what the failed call still holds: its frames keep its tensors, and torch keeps its cache."""
    for each in _chain(error):
        traceback.clear_frames(each.__traceback__)
    gc.collect()
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.empty_cache()
