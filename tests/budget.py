"""How many cases a test makes up: one number for the whole suite."""

import os

EXAMPLES = int(os.environ.get("PYTEST_FAKECLOUD_EXAMPLES", "30"))
"""Few while one works; the gate tries 150. Which ones are tried is the same in every run."""


def cases(usual: int) -> int:
    """How many cases of a kind to try, where ``usual`` are tried while one works."""
    return max(1, usual * EXAMPLES // 30)
