"""A model that sets the media types and headers of its answers."""

import jitney


@jitney.deployment
def responding(texts: list[str]) -> list[jitney.Response]:
    """A page, or with "json" a document."""
    return [
        jitney.Response({"text": text}, headers={"x-shade": "grey"})
        if text == "json"
        else jitney.Response(f"<b>{text}</b>", media_type="text/html; charset=utf-8", headers={"x-shade": text})
        for text in texts
    ]
