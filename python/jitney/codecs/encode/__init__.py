"""From what `predict` returned to the bytes of answers, checked on the way.

Runs in workers.
"""
