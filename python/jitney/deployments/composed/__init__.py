"""Deployments that the front carries out with others. Read in workers, in the front's command and in programs."""
