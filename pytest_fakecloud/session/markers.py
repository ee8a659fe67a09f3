"""Markers and parameters of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from .options import SESSION_SETTINGS, SETTINGS, misuse

_PLUGIN = f"{__package__.partition('.')[0]}.plugin"


def reject_parameters(item: pytest.Item, fixtures: Iterable[str]) -> None:
    """Fail a test that passes parameters to fixtures of the plugin, which do not read them.

    A parameter that replaces the fixture, and a suite's own fixture of the same name, are fine.
    """
    info: Any = getattr(item, "_fixtureinfo", None)
    found = getattr(info, "name2fixturedefs", {})
    for name in sorted(set(fixtures) - {SETTINGS, SESSION_SETTINGS}):
        function = getattr((found.get(name) or [None])[-1], "func", None)
        if getattr(function, "__module__", "") == _PLUGIN:
            raise misuse(
                f"the fixture {name} has no parameters, so parametrize(..., indirect=True) has no "
                "effect: pass settings with the marker, e.g. "
                f"pytest.param(..., marks=pytest.mark.fakecloud({name}={{...}})), or parametrize "
                "fakecloud_settings"
            )


def own_markers(item: Any) -> Iterator[tuple[pytest.Mark, bool]]:
    """Yield the markers of a test function and of its parameters, without those of its class, of its
    module and of hooks, each with whether it applies to several parameter sets.
    """
    callspec = getattr(item, "callspec", None)
    for marker in getattr(getattr(item, "obj", None), "pytestmark", ()):
        if marker.name == "fakecloud":
            yield marker, callspec is not None
    for marker in getattr(callspec, "marks", ()):
        if marker.name == "fakecloud":
            yield marker, False
