"""Models inside the user's own program: `jitney.run`, `jitney.connect` and the handles that both return.

Runs in the user's program only. Must not import `worker` or `cli`.
"""
