"""The command line, a file for each command.

Runs in the process of the `jitney` command. Each command imports what it needs when it runs: `--help` stays quick.
"""
