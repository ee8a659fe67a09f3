"""Parametrization of tests by the fixture ``fakecloud_settings``."""

from __future__ import annotations

from typing import Any

import pytest

from .options import SETTINGS

_OVERRIDDEN = pytest.StashKey[bool]()


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


def may_be_overridden(item: pytest.Item) -> bool:
    """Return whether ``fakecloud_settings`` of a test may be another one than the plugin's empty one.

    Computed once for all tests of a module or class, because reading the fixture takes 20 us per
    test. A test that requests the fixture or has parameters for it reads it in any case.
    """
    parent = item.parent
    parameters = getattr(getattr(item, "callspec", None), "params", ())
    if parent is None or SETTINGS in getattr(item, "fixturenames", ()) or SETTINGS in parameters:
        return True
    found = parent.stash.get(_OVERRIDDEN, None)
    if found is None:
        try:
            known = item.session._fixturemanager.getfixturedefs(SETTINGS, item)
            found = known is None or len(known) != 1
        except (AttributeError, TypeError):
            # Assume that it is overridden: this API of pytest is private and has changed.
            found = True
        parent.stash[_OVERRIDDEN] = found
    return found
