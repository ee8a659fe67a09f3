"""Long runs are left out unless asked for by their marker."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip("a long run: ask for it with -m long")
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(skip)
