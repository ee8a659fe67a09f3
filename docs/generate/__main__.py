"""Regenerate the generated pages of the documentation: ``python -m docs.generate``."""

from __future__ import annotations

from .pages import DOCS, PAGES

for place, page in PAGES.items():
    (DOCS / place).parent.mkdir(exist_ok=True)
    (DOCS / place).write_text(page(), encoding="utf-8")
    print(place)
