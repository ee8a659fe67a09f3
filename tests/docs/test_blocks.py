"""Run every Python block of the README and the documentation."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from ..harness import QUIET, without_the_examples
from ..harness import explore_searches_fewer_modules as explore_searches_fewer_modules
from .blocks import Block, Page, is_of_recipes, pages

pytestmark = pytest.mark.slow

PAGES = [page for page in pages() if not is_of_recipes(page)]
APART = {"xdist", "socket", "timeout", "django"}
"""Plugins whose purpose requires a separate process."""
OPTIONS = {"asyncio": ("-o", "asyncio_default_fixture_loop_scope=function")}
"""Options of plugins that some of their versions warn about."""
WARNINGS = (
    "-Werror",
    "-Wignore::ResourceWarning",  # Clients that an application does not close.
    "-Wignore:Call to deprecated",  # A deprecation warning of redis-py, caused by Celery.
    "-Wignore:Using `httpx`",  # A warning of Starlette's client if its other transport is not installed.
)


@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # Clients that an application does not close.
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Page, pytester: pytest.Pytester) -> None:
    gc.freeze()  # The collection at the end only inspects objects of this page.
    left_out = [block for block in page.blocks if block.missing]
    blocks = [block for block in page.blocks if not block.missing]
    _write(blocks, pytester.path)
    pytester.syspathinsert()
    for block in blocks:
        if not block.tests and not block.name:
            exec(compile(block.source, str(block), "exec"), {"__name__": str(block)})
    for together in _runs(blocks):
        _run(together, pytester)
    _let_go()
    if left_out:
        wanted = {name for block in left_out for name in block.missing}
        pytest.skip(f"{', '.join(map(str, left_out))} left out: no {', '.join(sorted(wanted))}")


def test_there_are_pages_with_blocks() -> None:
    assert "README.md" in {page.name for page in PAGES}
    assert sum(len(page.blocks) for page in PAGES) > 60


def test_what_must_fail_shows_its_report() -> None:
    assert [
        str(block) for page in PAGES for block in page.blocks if block.fails and not block.shown
    ] == []


def _let_go() -> None:
    """Collect the clients that a page does not close, as tests of applications do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _write(blocks: list[Block], folder: Path) -> None:
    for block in blocks:
        file = folder / _folder(block) / block.file
        assert not file.exists(), f"{block}: the page has a {block.file} already"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.source, encoding="utf-8")


def _folder(block: Block) -> str:
    return f"section_{block.section}" if block.is_of_its_section else "."


def _runs(blocks: list[Block]) -> Iterator[list[Block]]:
    """Yield groups of blocks that one run of pytest can execute: with equal options, and without a
    folder of their own.
    """
    tests = [block for block in blocks if block.tests]

    def kind(block: Block) -> tuple[bool, str, str, tuple[str, ...]]:
        ini = f"{block.section} {block.ini}" if block.ini else ""
        return block.fails, ini, block.plugin, block.options

    for (fails, *_), same in groupby(sorted(tests, key=kind), key=kind):
        if fails:
            yield from ([block] for block in same)
        else:
            yield list(same)


def _run(blocks: list[Block], pytester: pytest.Pytester) -> None:
    first = blocks[0]
    quiet = [option for option in QUIET if option != f"-pno:{first.plugin}"]
    folder = pytester.path
    if first.ini or first.fails:
        folder /= _folder(first)
    (folder / "pytest.ini").write_text(first.ini or "[pytest]\n", encoding="utf-8")
    files = [
        str((pytester.path / _folder(block) / block.file).relative_to(folder)) for block in blocks
    ]
    options = [*OPTIONS.get(first.plugin, ()), *first.options]
    arguments = [*quiet, *WARNINGS, "--strict-markers", *options, *files]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        patch.setenv("PYTHONPATH", str(pytester.path), prepend=os.pathsep)
        if first.plugin in APART:
            result = pytester.runpytest_subprocess("--rootdir", str(folder), *arguments)
        else:
            with without_the_examples():
                result = pytester.runpytest_inprocess("--rootdir", str(folder), *arguments)
    outcomes = result.parseoutcomes()
    where = ", ".join(map(str, blocks))
    assert set(outcomes) <= ({"failed", "errors"} if first.fails else {"passed"}), where
    assert sum(outcomes.values()) >= sum(block.tests for block in blocks), where
    if first.fails:
        assert _plain(first.shown) in _plain(result.stdout.str()), f"{first} shows another report"


def _plain(text: str) -> str:
    """Return a report without ports and durations, which differ from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"(?<=; )(\w+) :\d{4,5}\b", r"\1 :PORT", text)
    return "\n".join(line.rstrip() for line in re.sub(r"\d+\.\d+s\b", "0.1s", text).splitlines())
