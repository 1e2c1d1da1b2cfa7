"""What pydantic adds to its own types: how they are read and written here.

Imported only where a type of pydantic's is served: everything in this package imports pydantic.
"""
