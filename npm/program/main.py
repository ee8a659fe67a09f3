"""The program of the npm package: the command ``pytest-fakecloud``, with its own Python."""

from __future__ import annotations

import os
import sys

from pytest_fakecloud.cli import main


def restore_environment() -> None:
    """Remove the variables with which PyInstaller starts this program.

    Commands that ``run`` starts would otherwise load the libraries of this program.
    """
    original = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if original is not None:
        os.environ["LD_LIBRARY_PATH"] = original
    elif sys.platform == "linux":
        os.environ.pop("LD_LIBRARY_PATH", None)
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]


if __name__ == "__main__":
    restore_environment()
    sys.exit(main())
