"""`jitney check`: loads a deployment in this process and tries its examples, without a server."""
