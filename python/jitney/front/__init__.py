"""The front's side in Python: settings for the Rust server, and the call that runs it.

Runs in the process of `jitney serve`, and in a program with `jitney.run`. Never imports user code, nor the packages
that read it: deployments, signature, codecs, worker.
"""
