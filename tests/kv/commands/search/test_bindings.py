"""The search commands as the table binds them; what they do is tested in ``tests/kv/search``."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.commands.search import bindings
from pytest_fakecloud.kv.table.registry import specs
from tests.kv.conftest import Run

NAMES = [spec.name for spec in specs() if spec.name.startswith("SEARCH.")]


def test_all_twelve_are_bound() -> None:
    bound = {spec.name: spec.function for spec in specs() if spec.name in NAMES}
    assert len(bound) == 12
    assert {function.__module__ for function in bound.values() if function} == {bindings.__name__}


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_counted_before_anything_is_imported(run: Run, name: str) -> None:
    few = run.error(name) if name not in ("SEARCH.LISTALIASES", "SEARCH.LISTINDEXES") else ""
    assert not few or few == f"ERR wrong number of arguments for '{name.lower()}' command"


def test_the_lists_are_empty_at_first(run: Run) -> None:
    assert (run("SEARCH.LISTINDEXES"), run("SEARCH.LISTALIASES")) == ([], [])
