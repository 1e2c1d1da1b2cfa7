"""The code that runs in the environments of the servers. Other code imports only `models`."""
