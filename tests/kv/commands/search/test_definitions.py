"""The arity of commands about indexes; `tests/kv/search` tests what they do."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run

NAMES = ["CREATE", "DROP", "REINDEX", "DESCRIBE", "WAITINDEXING", "ALIASADD", "ALIASDEL"]


@pytest.mark.parametrize("name", NAMES)
def test_too_few_arguments(run: Run, name: str) -> None:
    text = f"ERR wrong number of arguments for 'search.{name.lower()}' command"
    assert run.error(f"SEARCH.{name}") == text


def test_no_index(run: Run) -> None:
    assert (run("SEARCH.LISTINDEXES"), run("SEARCH.LISTALIASES")) == ([], [])
