"""A model that looks for the keys of its server."""

import os

import jitney


@jitney.deployment
def nosy(texts: list[str]) -> list[str]:
    return [os.environ.get(text, "nothing") for text in texts]
