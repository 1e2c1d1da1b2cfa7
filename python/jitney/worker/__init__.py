"""The worker process: one replica of one deployment, from the import of its target to the end of its batches.

`python -m jitney.worker` is started by the front. Runs in workers only; `jitney check` uses parts of it. Must not
import `front` or `embedded`.
"""
