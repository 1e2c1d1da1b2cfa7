"""The server that is measured: one that runs already, or one that is started for it."""
