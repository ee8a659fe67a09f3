"""The arity of searches; `tests/kv/search` tests what they find."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


@pytest.mark.parametrize("name", ["QUERY", "COUNT", "AGGREGATE"])
def test_too_few_arguments(run: Run, name: str) -> None:
    text = f"ERR wrong number of arguments for 'search.{name.lower()}' command"
    assert run.error(f"SEARCH.{name} index") == text
