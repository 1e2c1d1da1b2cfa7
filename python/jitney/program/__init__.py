"""The engine inside and beside a program of the user's own: `run`, `connect`, and the models that they hand out."""
