"""Check that the documentation builds without warnings and that every internal link works."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from .blocks import DOCS

NEEDED = ("sphinx", "furo", "myst_parser", "sphinx_copybutton", "sphinx_design")

# Disabling garbage collection saves a third of such a build, and leaving out the search index a tenth. A
# third of the rest is saved by generating the navigation once per folder, whose pages differ only in the
# highlighted entry, and by ending the process without freeing its objects.
BUILD = """
import functools, gc, os, posixpath, sys
import furo
from sphinx.cmd.build import main
from sphinx.search.en import SearchEnglish

navigation = furo._compute_navigation_tree
kept = {}

def navigation_of_folder(context):
    folder = posixpath.dirname(context["pagename"])
    if folder not in kept:
        kept[folder] = navigation(context)
    return kept[folder]

gc.disable()
SearchEnglish.stem = functools.cache(SearchEnglish.stem)
furo._compute_navigation_tree = navigation_of_folder
code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Path:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra docs is not installed: no {', '.join(missing)}")
    command = [sys.executable, "-c", BUILD, "-W", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (built.returncode, built.stderr) == (0, "")
    return tmp_path


# This is one test, because each xdist worker would build the site again.
def test_every_page_is_built_and_its_links_lead_somewhere(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert {page for page in pages if not (site / page).exists()} == set()
    places = {page: set(_ids(page)) for page in site.rglob("*.html")}
    broken = [
        f"{page.relative_to(site)}: {link}"
        for page in places
        for link in _links(page)
        if not _leads_somewhere(page, link, places)
    ]
    assert broken == []
    assert sum(1 for page in places for _ in _links(page)) > 1000


def _ids(page: Path) -> Iterator[str]:
    yield from re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))


def _links(page: Path) -> Iterator[str]:
    for link in re.findall(
        r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]+)"', page.read_text("utf-8")
    ):
        if not re.match(r"[a-z]+:|//", link):
            yield unescape(link)


def _leads_somewhere(page: Path, link: str, places: dict[Path, set[str]]) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or target not in places or unquote(anchor) in places[target]
