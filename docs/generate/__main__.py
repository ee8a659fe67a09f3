"""Write everything that is generated: ``python -m docs.generate``.

It writes the pages of the documentation, the stubs for type checkers, and the results of ``verify`` with
the real servers that are installed.
"""

from __future__ import annotations

from tests.stubs import stubs
from tests.surface import STUB, public_names

from . import scenarios
from .npm import FILES
from .pages import DOCS, PAGES

files = {DOCS / place: page() for place, page in PAGES.items()}
files[scenarios.PAGE] = scenarios.page_with(scenarios.results() | scenarios.measured())
files |= {STUB: public_names(), **stubs()}
files |= {file: write() for file, write in FILES.items()}
for file, text in files.items():
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(file.relative_to(DOCS.parent))
