"""A model that costs nothing: what is left is the server."""

import jitney


@jitney.deployment(max_batch_size=64)
def noop(items: list[dict[str, str]]) -> list[dict[str, str]]:
    return items


@jitney.deployment(max_batch_size=64)
def raw(items: list[bytes]) -> list[bytes]:
    return items
