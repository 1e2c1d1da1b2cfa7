"""Deployments: the decorator, the targets that hold them, the manifest that the front gets of them.

Runs in workers and in the user's program. The only package that imports user code; the front must not import it.
"""
