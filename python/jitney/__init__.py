"""Serves any Python model to many clients at once."""
