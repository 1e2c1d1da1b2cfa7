"""Values and annotations that users write: `Image`, `Tensor`, `Embeddings`.

Runs in workers and in the user's program. Imports numpy and Pillow only where a value needs them.
"""
