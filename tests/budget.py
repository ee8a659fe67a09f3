"""The number of generated cases in all tests, set in one place."""

import os

EXAMPLES = int(os.environ.get("PYTEST_FAKECLOUD_EXAMPLES", "30"))
"""Few by default; CI uses 150 once a week. The selection is the same in every run."""


def cases(usual: int) -> int:
    """Return how many cases to generate, where ``usual`` is the number during development."""
    return max(1, usual * EXAMPLES // 30)
