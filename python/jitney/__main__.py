"""`python -m jitney` is `jitney`."""

from jitney.cli.main import entry

if __name__ == "__main__":
    entry()
