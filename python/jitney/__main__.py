"""`python -m jitney` is `jitney`."""

import sys

from jitney.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
