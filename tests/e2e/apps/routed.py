"""Deployments with a `route`."""

import jitney


@jitney.deployment(route="/v1/predict", examples=["hello"])
def shout(texts: list[str]) -> list[str]:
    """A text, in capitals."""
    return [text.upper() for text in texts]


whisper = jitney.configure(shout, name="whisper", route="/api/whisper")
