"""Check that the documentation builds without warnings, that every internal link works, and, in
Chromium, that readers find and can read its pages.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote_plus, unquote

import pytest

from ..harness import check_each
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
def test_the_site(site: Path) -> None:
    _check_links(site)
    _check_signatures(site)
    with served(site) as origin, chromium() as browser:
        page = browser.new_page()
        _check_searches(page, origin)
        _check_first_screen(page, origin)
        _check_contents(page, origin)
        _check_tables(page, origin)


def _check_links(site: Path) -> None:
    """Every page is built, and every link within the site leads to a page and an anchor."""
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert {page for page in pages if not (site / page).exists()} == set()
    places = {
        page: set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8")))
        for page in site.rglob("*.html")
    }
    broken = [
        f"{page.relative_to(site)}: {link}"
        for page in places
        for link in _links(page)
        if not _leads_somewhere(page, link, places)
    ]
    assert broken == []
    assert sum(1 for page in places for _ in _links(page)) > 1000


def _check_signatures(site: Path) -> None:
    """Signatures are Python: no qualified names of typing, no placeholders, no addresses."""
    signatures = [
        unescape(re.sub(r"<[^>]*>", "", signature))
        for page in (site / "reference" / "api").glob("*.html")
        for signature in re.findall(r'<dt class="sig.*?</dt>', page.read_text("utf-8"), re.S)
    ]
    assert len(signatures) > 300
    raw = re.compile(r"~|<|typing\.|pytest_fakecloud\.|object at|ABSENT")
    assert [signature for signature in signatures if raw.search(signature)] == []


SEARCHES = {
    "mock upstash redis": "guides/key-value.html",
    "mock upstash vector": "guides/vector.html",
    "mock qstash": "guides/queue.html",
    "mock kafka rest": "guides/broker.html",
    "wait for event workflow": "guides/workflows.html",
    "upstash workflow local testing": "guides/workflows.html",
    "qstash signature": "guides/queue.html",
    "redis search": "guides/search.html",
    "celery": "guides/applications.html",
    "install": "start.html",
}
"""Searches, and the page that is one of the first three results."""


def _check_searches(page: Any, origin: str) -> None:
    def check(words: str, wanted: str) -> None:
        page.goto(f"{origin}/search.html?q={quote_plus(words)}")
        # The list is complete when the summary counts the results.
        page.wait_for_function(
            "/\\d|did not match/.test(document.querySelector('.search-summary').innerText)"
        )
        links = page.eval_on_selector_all(
            "ul.search > li > a", "links => links.map(link => new URL(link.href).pathname.slice(1))"
        )
        assert wanted in list(dict.fromkeys(links))[:3], links

    check_each(check, SEARCHES.items())


def _check_first_screen(page: Any, origin: str) -> None:
    """The first screen names the products, and says how to install the package."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(origin)
    install = page.get_by_text("pip install pytest-fakecloud").first.bounding_box()
    assert install["y"] + install["height"] < 800
    entries = page.locator(".sidebar-tree a").all_inner_texts()
    products = ["Redis", "Vector", "Workflow", "Kafka REST"]
    assert {"QStash", *(f"Upstash {name}" for name in products)} <= set(entries)


def _check_contents(page: Any, origin: str) -> None:
    """At 1280 pixels, the contents of a page are beside the text, and nothing overlaps."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{origin}/guides/queue.html")
    left, text, contents = (
        page.locator(part).bounding_box()
        for part in (".sidebar-drawer", "article[role=main]", ".toc-drawer")
    )
    assert left["x"] + left["width"] <= text["x"]
    assert text["x"] + text["width"] <= contents["x"]
    assert contents["x"] + contents["width"] <= 1280
    assert text["width"] >= 640


def _check_tables(page: Any, origin: str) -> None:
    """At 420 pixels, tables are not wider than the page, and each value has the label of its column."""
    page.set_viewport_size({"width": 420, "height": 860})
    for name in ("reference/settings", "reference/kv-commands", "guides/queue", "compare"):
        page.goto(f"{origin}/{name}.html")
        assert page.locator("article table").count()
        assert page.evaluate(WIDE_OR_WITHOUT_LABEL) == []


WIDE_OR_WITHOUT_LABEL = """
[...document.querySelectorAll("article table.docutils td")]
  .filter((cell) => cell.innerText.trim())
  .filter((cell) => cell.getBoundingClientRect().right > innerWidth
    || cell.scrollWidth > cell.clientWidth + 1 || !cell.dataset.column)
  .map((cell) => cell.innerText)
"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a loopback port; yield the origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder))) as server:
        running = Thread(target=server.serve_forever, args=(0.01,))
        running.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            running.join()


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Do not print requests."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium. Skip the rest of the test if it or Playwright is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api")
    place = shutil.which("chromium")
    if place is None:
        pytest.skip("links and signatures are right; chromium, for the rest, is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


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
