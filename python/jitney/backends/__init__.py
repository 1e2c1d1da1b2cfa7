"""Clusters in which workers run. Runs in a child process of the front, and on the machines of a cluster; never in the front."""
