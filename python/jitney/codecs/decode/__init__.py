"""From the bytes of items to the arguments of `predict`.

Runs in workers.
"""
