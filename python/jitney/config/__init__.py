"""Configuration: the tables of options, the layers that set them, constructor arguments as text.

Runs everywhere: in the front, in workers, in the user's program. Must not import user code, numpy or the extension.
"""
