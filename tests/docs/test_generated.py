"""Check that the generated pages of the documentation are up to date."""

from __future__ import annotations

import re

import pytest

import pytest_fakecloud

from .blocks import DOCS

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)

from docs.generate.pages import PAGES


@pytest.mark.parametrize("place", PAGES)
def test_page_is_current(place: str) -> None:
    assert (DOCS / place).read_text(encoding="utf-8") == PAGES[place](), (
        "run: python -m docs.generate"
    )


def test_every_public_name_has_its_place() -> None:
    pages = [page() for place, page in PAGES.items() if place.startswith("reference/api/")]
    headings = re.findall(r"^## `(\w+)`$", "".join(pages), re.M)
    assert sorted(headings) == sorted(pytest_fakecloud.__all__)


def test_errors_of_every_service_are_listed() -> None:
    page = PAGES["reference/errors.md"]()
    for text in (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "422 Invalid vector dimension: <given>, expected: <expected>",
        "401 unable to authenticate: invalid token",
        "NOPERM this user has no permissions to run the '<name>' command",
    ):
        assert f"\n{text}\n" in page


def test_decisions_of_every_service_are_listed() -> None:
    page = (DOCS / "fidelity/decided.md").read_text(encoding="utf-8")
    assert page.count("\n- ") > 60
    for title in ("Everywhere", "Key-value", "Vector", "Broker", "Queue"):
        assert f"\n## {title}\n" in page
    assert "a slot number, which deletions do not change" in page
