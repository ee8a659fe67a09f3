"""Run every recipe of the cookbook; check that it finds its bugs and that no finding of its reports
is false.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fakecloud.explore.subject.options import Options

from ..budget import cases
from ..harness import explore_searches_fewer_modules as explore_searches_fewer_modules
from ..notations import sections
from ..reporting.judged import ALWAYS, COLUMNS, judge
from .blocks import DOCS
from .recipes import Recipe, recipes

pytestmark = pytest.mark.slow

PAGES = sorted((DOCS / "cookbook").glob("*.md"))
MORE = Path(__file__).parent / "bugs.md"
RECIPES = [recipe for page in (*PAGES, MORE) if page.stem != "tools" for recipe in recipes(page)]
JUDGED = Path(__file__).parent / "judged_facts.txt"


@pytest.fixture(scope="module")
def what_recipes_need() -> None:
    """Import these modules once, because a run in this process forgets modules that it was the
    first to import.
    """
    for name in ("fastapi.testclient", "flask", "redis", "upstash_workflow"):
        pytest.importorskip(name)


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(
            recipe, id=str(recipe), marks=[pytest.mark.slow] if recipe.page == "libraries" else []
        )
        for recipe in RECIPES
    ],
)
@pytest.mark.usefixtures("what_recipes_need")
def test_recipe(recipe: Recipe, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = recipe.missing()
    assert not missing or recipe.page == "libraries"
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if any(re.search(" NX [EP]X ", line) for bug in recipe.bugs for line in bug.says):
        pytest.importorskip("redis", "8", reason="old versions send EX and PX before NX")
    monkeypatch.setenv("COLUMNS", COLUMNS)
    recipe.find_bugs(pytester)
    # Most bugs are found within 20 schedules. ``tests/explore`` tries the corrections with more.
    monkeypatch.setitem(Options.__init__.__kwdefaults__, "budget", cases(20))
    judge(JUDGED, str(recipe), "\n".join(recipe.run_without_bugs(pytester, *ALWAYS).outlines))


def test_every_judged_fact_is_of_a_recipe() -> None:
    assert sections(JUDGED).keys() <= {str(recipe) for recipe in RECIPES}


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "cookbook" / "index.md").read_text(encoding="utf-8")
    contents = index.split("```{toctree}", 1)[1].split("```", 1)[0].split()
    assert {page.stem for page in PAGES} - {"index"} <= set(contents)


def test_every_block_is_a_part_of_a_recipe() -> None:
    for page in (*PAGES, MORE):
        if page.stem != "tools":  # tests/docs runs that one
            text = page.read_text(encoding="utf-8")
            blocks = text.count("```python") + text.count("```diff")
            assert sum(recipe.python_blocks for recipe in recipes(page)) == blocks
