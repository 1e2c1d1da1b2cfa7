"""`make bench-scale`: workers on other machines, replicas on Ray, and models that use each other.

Machines are network namespaces of one machine, so all of them share its cores: compare ratios.
"""
