"""What `predict` takes and returns, read from its annotations: items, JSON Schemas, group keys, cost, task.

Runs in workers, and in the user's program for the classes that it hands over. Never runs in the front, which reads the
manifest instead. Must not import a codec; pydantic only for types that are pydantic's.
"""
