"""Make ``python -m pytest_fakecloud`` run the ``pytest-fakecloud`` command."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
