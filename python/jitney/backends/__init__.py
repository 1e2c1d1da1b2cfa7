"""Clusters in which workers run. Runs in a child process of the front and in the cluster, never in the front."""
