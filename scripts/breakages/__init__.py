"""Ten faults of a real server, and where an operator sees each: `make breakages`."""
