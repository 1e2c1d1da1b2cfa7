"""Hides secrets among values that are printed or served, by the names of the values."""

import re
from typing import Final, cast

_SECRET: Final = ("key", "token", "secret", "password", "passwd", "passphrase", "credential")
_VOCABULARY: Final = frozenset({
    "additional", "begin", "bos", "cls", "completion", "context", "decoder", "end", "eos", "first", "forced",
    "generated", "ignore", "image", "input", "last", "mask", "max", "min", "n", "new", "num", "output", "pad", "per",
    "prefix", "prompt", "sep", "special", "start", "stop", "suffix", "suppress", "total", "unk",
})  # fmt: skip
"""Words next to "token" in names of language models' arguments: max_new_tokens, pad_token, decoder_start_token_id."""
_USER_IN_URL: Final = re.compile(r"://[^/@\s]+@")


def without_secrets(value: object) -> object:
    """Return a value as it may be printed: what looks secret by its name is starred."""
    if isinstance(value, dict):
        return {
            key: "***" if _looks_secret(key) else without_secrets(part)
            for key, part in cast("dict[str, object]", value).items()
        }
    if isinstance(value, list):
        return [without_secrets(part) for part in cast("list[object]", value)]
    return _USER_IN_URL.sub("://***@", value) if isinstance(value, str) else value


def _looks_secret(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = re.split(r"[^a-z0-9]+", spaced)
    others = set(words) - {"token", "tokens", "id", "ids"}
    if others and others <= _VOCABULARY:
        return False
    return any(word.removesuffix("s").endswith(_SECRET) for word in words)
