"""The arity of search commands, and their lists; `tests/kv/search` tests what they do."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.table.registry import specs
from tests.kv.conftest import Run

NAMES = [spec.name for spec in specs() if spec.name.startswith("SEARCH.")]


@pytest.mark.parametrize("name", NAMES)
def test_too_few_arguments(run: Run, name: str) -> None:
    few = run.error(name) if name not in ("SEARCH.LISTALIASES", "SEARCH.LISTINDEXES") else ""
    assert not few or few == f"ERR wrong number of arguments for '{name.lower()}' command"


def test_the_lists_are_empty_at_first(run: Run) -> None:
    assert (run("SEARCH.LISTINDEXES"), run("SEARCH.LISTALIASES")) == ([], [])
