"""The name that was probably meant, for messages about a name that does not exist."""

from collections.abc import Iterable


def closest(given: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like the given one; None if all differ more than `cutoff`, from 0 to 1."""
    import difflib  # noqa: PLC0415 - only an error needs it

    return next(iter(difflib.get_close_matches(given, list(known), n=1, cutoff=cutoff)), None)
