"""A model that reads which kind of file its bytes are."""

import jitney


@jitney.deployment(context_headers=["content-type"])
def sound(files: list[bytes]) -> list[str]:
    """Say what came."""
    requests = jitney.context().requests
    return [f"{len(file)} bytes of {each.headers['content-type']}" for file, each in zip(files, requests, strict=True)]
