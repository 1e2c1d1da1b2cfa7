"""Replicas in a Ray cluster. Only this package imports Ray.

`python -m jitney.backends.ray` is the *provider*, a child of the front: it asks Ray for the places that the front
needs, one detached actor each. The actor (`place`) runs `jitney worker`, which joins the front like any agent.
"""
