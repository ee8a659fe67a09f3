"""Parametrization of tests by the fixture ``fakecloud_settings``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from .options import SESSION_SETTINGS, SETTINGS, misuse

_PLUGIN = f"{__package__.partition('.')[0]}.plugin"
_OVERRIDDEN = pytest.StashKey[dict[str, bool]]()


def ask_for_settings(metafunc: pytest.Metafunc, fixtures: frozenset[str]) -> None:
    """Let ``fakecloud_settings`` parametrize tests that use fakes but do not request it themselves.

    ``fixtures`` are the names of the fixtures that return fakes.

    pytest accepts parameters only for fixtures that a test requests at collection. As a request of
    ``fakecloud_settings`` takes 20 us, only tests that need it request it.
    """
    if SETTINGS in metafunc.fixturenames or fixtures.isdisjoint(metafunc.fixturenames):
        return
    definition = metafunc.definition
    if may_be_overridden(definition) or _is_parametrized(definition):
        definition.add_marker(pytest.mark.usefixtures(SETTINGS))
        _find_fixtures_again(metafunc)


def _find_fixtures_again(metafunc: Any) -> None:
    """Add the fixtures of the test's new marker, with private API of pytest: it has no public one."""
    definition = metafunc.definition
    manager = definition.session._fixturemanager
    asked = manager.getfixtureinfo(definition, metafunc.function, metafunc.cls)
    metafunc.fixturenames[:] = asked.names_closure
    metafunc._arg2fixturedefs.update(asked.name2fixturedefs)


def _is_parametrized(item: pytest.Item) -> bool:
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        if SETTINGS in names:
            return True
    return False


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


def may_be_overridden(item: pytest.Item, fixture: str = SETTINGS) -> bool:
    """Return whether a test's fixture of settings may be another one than the plugin's empty one.

    Computed once for all tests of a module or class, because reading the fixture takes 20 us per
    test. A test that requests the fixture or has parameters for it reads it in any case.
    """
    parent = item.parent
    parameters = getattr(getattr(item, "callspec", None), "params", ())
    if parent is None or fixture in getattr(item, "fixturenames", ()) or fixture in parameters:
        return True
    found = parent.stash.setdefault(_OVERRIDDEN, {})
    if fixture not in found:
        try:
            known = item.session._fixturemanager.getfixturedefs(fixture, item)
            found[fixture] = known is None or len(known) != 1
        except (AttributeError, TypeError):
            # Assume that it is overridden: this API of pytest is private and has changed.
            found[fixture] = True
    return found[fixture]


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
