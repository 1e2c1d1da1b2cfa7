"""Commands for several machines: the secret that they share, and workers on other machines."""
