"""Clusters in which workers run. Runs beside the front, and on the machines of a cluster; never in the front."""
