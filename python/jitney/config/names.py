"""Names of deployments."""

import re


def snake_case(name: str) -> str:
    """Return the name of the deployment of a class or function of this name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
