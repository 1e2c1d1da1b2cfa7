"""Models of a server that call each other."""
