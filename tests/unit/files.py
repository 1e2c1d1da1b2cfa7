"""Small files for the tests of images and arrays."""

import base64
import io

import numpy as np
from PIL import Image


def png(width: int = 2, height: int = 2) -> bytes:
    """Return a red image."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, "PNG")
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Return an array as a `.npy` file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def text(data: bytes) -> str:
    """Return bytes as JSON has them."""
    return base64.b64encode(data).decode()
