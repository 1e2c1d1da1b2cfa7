"""Make a secret file. The front and its agents each need a copy of it; no other user may read it."""

import argparse
import os
import secrets
from pathlib import Path
from typing import Final

from jitney.errors import ConfigError

RANDOM_BYTES: Final = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the path of the new file."""
    parser.add_argument("path", metavar="PATH", type=Path, help="the file to make; it must not exist")


def run(arguments: argparse.Namespace) -> int:
    """Write a secret of 256 random bits, which only its owner may read."""
    path: Path = arguments.path
    try:
        # O_EXCL: a secret that is in use is not overwritten, and a link is not followed.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; remove it first, or name another file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}") from None
    with os.fdopen(file, "w") as opened:
        opened.write(secrets.token_urlsafe(RANDOM_BYTES) + "\n")
    print(f"{path}: a new secret; copy it to the machines of the server, and to no others")
    return 0
