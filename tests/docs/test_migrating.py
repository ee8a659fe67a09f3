"""Run the migration pages: the tests after the change must pass, those before it if their library
is installed.
"""

from __future__ import annotations

import pytest

from .blocks import DOCS
from .recipes import Recipe, recipes

pytestmark = pytest.mark.slow

PAGES = sorted((DOCS / "migrating").glob("*.md"))
RECIPES = [recipe for page in PAGES for recipe in recipes(page)]
MAY_BE_MISSING = {"boto3", "fakeredis", "moto"}
"""Libraries that only the tests before the change use; no extra installs them."""


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_recipe(recipe: Recipe, pytester: pytest.Pytester) -> None:
    if recipe.needs:
        pytest.skip(f"it needs {recipe.needs}")
    missing = recipe.missing()
    assert recipe.title == "Before" or not missing
    assert set(missing) <= MAY_BE_MISSING
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    recipe.run(pytester)


def test_every_page_shows_before_and_after() -> None:
    for page in PAGES:
        if page.stem != "index":
            titles = [recipe.title for recipe in recipes(page)]
            assert titles[:2] == ["Before", "After"]
            assert not [recipe for recipe in recipes(page) if recipe.needs][1:]
            assert "\n|---|---|\n" in page.read_text(encoding="utf-8")


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "migrating" / "index.md").read_text(encoding="utf-8")
    contents = index.split("```{toctree}", 1)[1].split("```", 1)[0].split()
    assert {page.stem for page in PAGES} - {"index"} <= set(contents)
