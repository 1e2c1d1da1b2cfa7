"""A model that answers with what it knows of the request of each item."""

import jitney


@jitney.deployment(context_headers=["X-Tenant", "accept-language"])
def contextual(texts: list[str]) -> list[dict[str, object]]:
    """Id, headers and key's name of each item's request."""
    requests = jitney.context().requests
    return [
        {"text": text, "id": request.id, "headers": dict(request.headers), "key": request.key_name}
        for text, request in zip(texts, requests, strict=True)
    ]
