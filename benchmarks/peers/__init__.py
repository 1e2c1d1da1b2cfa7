"""Other servers: which ones, how each is configured, and how it is measured."""
