"""Answers in parts, as programs take them."""
