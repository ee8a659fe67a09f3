"""A stream to look at."""

from __future__ import annotations

from tests.kv.conftest import Run


def fill(run: Run, *ids: str) -> None:
    """Add entries of those ids."""
    for each in ids:
        run("XADD", "s", each, "a", each)
