"""A helper that fills a stream."""

from __future__ import annotations

from tests.kv.conftest import Run


def fill(run: Run, *ids: str) -> None:
    """Add entries with these IDs."""
    for each in ids:
        run("XADD", "s", each, "a", each)
