"""Print how long the reports of the planted bugs are: ``python -m tests.reporting.planted``."""

from __future__ import annotations

from .test_bugs import BUGS, NAMES

lengths = {name: len((BUGS / f"{name}.txt").read_text("utf-8").splitlines()) for name in NAMES}
for name, lines in sorted(lengths.items(), key=lambda one: -one[1]):
    print(f"{lines:5}  {name}")
print(f"{sum(lengths.values()):5}  in all, {sum(lengths.values()) / len(lengths):.1f} a report")
