"""What is sent: inputs from files or examples, as requests of each protocol."""
