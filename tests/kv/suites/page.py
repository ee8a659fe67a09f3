"""The figures of suites on a page of the documentation, ``docs/fidelity/index.md``."""

from __future__ import annotations

import re
from pathlib import Path

_NUMBER = r" *([\d,]+) *"


def figures(page: Path, title: str) -> tuple[int, int]:
    """Return the passed tests of the real server and of the fake, from the suite's row of a table."""
    rows = re.findall(
        rf"^\| {re.escape(title)}\b[^|]*\|{_NUMBER}\|{_NUMBER}\|", page.read_text("utf-8"), re.M
    )
    if len(rows) != 1:
        raise LookupError(f"{page} has {len(rows)} rows that begin with {title!r}, not one")
    real, fake = (int(number.replace(",", "")) for number in rows[0])
    return real, fake


def problem(page: Path, title: str, real: int, fake: int) -> str | None:
    """Return why the page does not have the measured figures, or None."""
    if not real:
        return (
            "no test passed on the real server: check that it starts and that the source is whole"
        )
    written = figures(page, title)
    if written == (real, fake):
        return None
    return (
        f"{page} says that the fake passes {written[1]:,} of {written[0]:,} tests; measured: "
        f"{fake:,} of {real:,}. Fix what fails, or write the new figures and the reasons there."
    )
