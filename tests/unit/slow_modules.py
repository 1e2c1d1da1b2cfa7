"""Modules that take long to import, and that no process of a server loads unless a model needs them."""

from typing import Final

SLOW_MODULES: Final = {
    "asyncio",
    "difflib",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "numpy",
    "pydantic",
    "subprocess",
    "tomllib",
}
