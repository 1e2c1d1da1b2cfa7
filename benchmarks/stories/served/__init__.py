"""The same models as jitney serves them."""
