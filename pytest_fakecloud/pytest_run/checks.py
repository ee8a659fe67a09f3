"""Checks that fail a test whose settings would have no effect, in the order in which they are made.

=====================  ====================================  =========================================
Moment                 Called by                             Checks
=====================  ====================================  =========================================
set-up begins          ``plugin.pytest_runtest_setup()``     ``reject_parameters``; ``check_markers``
                                                             with ``check_narrow_settings``
a cloud opens          ``Run.open_cloud()``                  ``check_narrow_settings``,
                                                             ``warn_of_session_settings``
the session's opens    ``Run.open_session_cloud()``          ``check_session_settings``; for another use
                                                             ``check_unchanged``
in a fixture           ``plugin.fakecloud_env``              ``check_env``
set-up has failed      ``plugin.pytest_runtest_makereport``  ``scope_advice``
the code begins        ``Run.begin_call()``                  ``check_later_test`` with
                                                             ``check_narrow_settings`` and
                                                             ``check_unchanged``
the test has passed    ``plugin.pytest_runtest_call()``      ``check_marker_effect``
=====================  ====================================  =========================================

``RunOptions.merged_settings()`` checks single values, ``check_run_options()`` the ini settings, and
``EarlyFakes.apply()`` the settings that early fakes get.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import pytest

from ..cloud.cloud import Cloud
from ..cloud.services import SERVICES
from .options import (
    CHOICES,
    PER_TEST_SETTINGS,
    SESSION_SETTINGS,
    SETTINGS,
    RunOptions,
    fixture_of,
    misuse,
)
from .warning import warn

# -- before the fixtures of a test -----------------------------------------------------------------

_PLUGIN = f"{__package__.partition('.')[0]}.plugin"


def reject_parameters(item: pytest.Item, fixtures: Iterable[str]) -> None:
    """Fail a test that passes parameters to fixtures of the plugin, which do not read them.

    A parameter that replaces the fixture, and a suite's own fixture of the same name, are fine.
    """
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions = getattr(info, "name2fixturedefs", {})
    for name in sorted(set(fixtures) - {SETTINGS, SESSION_SETTINGS}):
        function = getattr((definitions.get(name) or [None])[-1], "func", None)
        if getattr(function, "__module__", "") == _PLUGIN:
            raise misuse(
                f"the fixture {name} has no parameters, so parametrize(..., indirect=True) has no "
                "effect: pass settings with the marker, e.g. "
                f"pytest.param(..., marks=pytest.mark.fakecloud({name}={{...}})), or parametrize "
                "fakecloud_settings"
            )


def check_markers(options: RunOptions, item: pytest.Item) -> None:
    """Fail a test with invalid markers, even if it uses no fake, or with own ones that cannot apply."""
    options.merged_settings(item)
    check_narrow_settings(options, item, {})


def check_narrow_settings(
    options: RunOptions, item: pytest.Item, settings: Mapping[str, Any]
) -> None:
    """Fail a test whose own settings, of its marker or of ``fakecloud_settings``, cannot apply to its
    fakes, because they outlive it. Also called when the fakes open and before the test's code, because
    the value ``settings`` of that fixture is known only then.
    """
    if not isinstance(settings, (dict, Mapping)):
        raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {settings!r}")
    if options.scope == "function":
        return
    scope_node = options.node_of_scope(item)
    if scope_node is item:
        return
    shared = scope_node.listchain()
    names = {
        fixture_of(name)
        for node, marker in item.iter_markers_with_node("fakecloud")
        if node not in shared
        for name in marker.kwargs
    }
    if options.scope == "session":
        names.update(map(fixture_of, settings))
    if wrong := names.difference(PER_TEST_SETTINGS):
        advice = {
            "session": "(fakecloud_scope or fakecloud_early): set them in the session fixture "
            "fakecloud_session_settings",
            "module": "(fakecloud_scope): set them in pytestmark of the module, or return them "
            "from the fixture fakecloud_settings",
            "class": "(fakecloud_scope): set them with a marker of the class, or return them "
            "from the fixture fakecloud_settings",
        }
        raise misuse(
            f"{', '.join(sorted(wrong))} cannot be set for one test, because the fakes live for the "
            f"whole {options.scope} {advice[options.scope]}"
        )


# -- when a cloud opens ----------------------------------------------------------------------------


def check_session_settings(scope: str, settings: object) -> None:
    """Fail a test if the settings of the session's fakes, which start now, cannot take effect."""
    if not isinstance(settings, Mapping):
        raise misuse(
            f"the fixture {SESSION_SETTINGS} must return a dict of settings, got {settings!r}"
        )
    if scope == "session":
        return
    names = {fixture_of(name) for name in settings}
    if wrong := names.intersection(PER_TEST_SETTINGS):
        raise misuse(
            f"{', '.join(sorted(wrong))} in {SESSION_SETTINGS} has no effect, because each test has "
            "its own fakes: return it from the fixture fakecloud_settings, or set "
            "fakecloud_scope = session"
        )
    if wrong := names.intersection(SERVICES):
        name = min(wrong)
        raise misuse(
            f"{', '.join(sorted(wrong))} in {SESSION_SETTINGS} has no effect, because each test has "
            "its own fakes: return it from the fixture fakecloud_settings, set "
            "fakecloud_scope = session, or pass the settings to the fake that you start: "
            f"fakecloud_session.{name}(...)"
        )


def warn_of_session_settings(item: pytest.Item) -> None:
    """Warn of settings of the session in a run whose fixtures do not use them."""
    if any(
        "fakecloud_session" in getattr(other, "fixturenames", ()) for other in item.session.items
    ):
        return
    warn(
        item,
        f"the fixture {SESSION_SETTINGS} has no effect, because no fakes of this run last for the "
        "session and no test requests fakecloud_session: override fakecloud_settings, or set "
        "fakecloud_scope = session",
    )


def check_unchanged(
    fixture: str, scope: str, settings: Mapping[str, Any], former: Mapping[str, Any]
) -> None:
    """Fail a test if a fixture has other settings than the former ones, with which the fakes of its
    scope have started. Only ``strict`` of ``fakecloud_settings`` may differ. ``env`` may not, unless a
    marker has it: variables are set before the fixtures of a test, when its markers are known, but not
    yet what a fixture returns for it.
    """
    if fixture == SETTINGS:
        settings, former = {**settings, "strict": None}, {**former, "strict": None}
    if settings is former or settings == former:
        return
    reasons = {
        SETTINGS: f"the fakes live for the whole {scope} (fakecloud_scope): override the fixture once "
        f"for the {scope}",
        SESSION_SETTINGS: "the session's fakes start only once: override the fixture once, without "
        "parameters, in the top conftest.py",
    }
    raise misuse(
        f"{fixture} has other settings for this test than for an earlier one, but {reasons[fixture]}"
    )


def check_env(item: pytest.Item) -> None:
    """Fail a test that requests ``fakecloud_env`` although its own marker has ``env=False``."""
    if any(marker.kwargs.get("env") is False for marker, _ in _own_markers(item)):
        raise misuse(
            "env=False of the marker and the fixture fakecloud_env contradict each other: remove "
            "one of them"
        )


_MISMATCH = re.compile(r"fixture (\w+) with a (\w+) scoped request")


def scope_advice(error: str, fixtures: Container[str]) -> str:
    """Return how a fixture of a wide scope can use a fake, or fakes of a wide scope can have settings,
    if that is what pytest's error is about.
    """
    match = _MISMATCH.search(error)
    if match is None or match[1] not in fixtures:
        return ""
    name = match[1]
    scope = match[2] if match[2] in CHOICES["fakecloud_scope"] else "session"
    if name in (SETTINGS, SESSION_SETTINGS):
        # The fakes of the whole run take no settings of single tests.
        is_session = name == SESSION_SETTINGS or scope == "session"
        wide = ("session", SESSION_SETTINGS) if is_session else (scope, SETTINGS)
        return (
            "\n\nfakecloud: the fakes last longer than a test (fakecloud_scope, or those of "
            f"fakecloud_session), so the fixture with their settings must, too:\n"
            f"    @pytest.fixture(scope={wide[0]!r})\n    def {wide[1]}():"
        )
    lines = ["", "", "fakecloud: let the fakes last as long as this fixture; in pytest.ini:"]
    lines += ["    [pytest]", f"    fakecloud_scope = {scope}"]
    if name == "fakecloud_env":
        lines += ["    fakecloud_env = true", "and request the fakes instead of fakecloud_env"]
    else:
        start = fixture_of(name.removeprefix("fakecloud_"))
        start = f".{start}()" if start in SERVICES else ""
        lines.append(f"or use the cloud that lasts for the run: fakecloud_session{start}")
    return "\n".join(lines)


# -- before the code of a test whose fakes outlive it ----------------------------------------------


def check_later_test(
    options: RunOptions,
    item: pytest.Item,
    former_settings: Mapping[str, Any] | None,
    former_session_settings: Mapping[str, Any] | None,
) -> None:
    """Fail a test whose settings cannot apply to the clouds that outlive it, given the values of the two
    fixtures with settings with which the clouds that it uses were opened. pytest returns the value of a
    fixture of a wide scope, such as ``fakecloud``, without looking at the settings again.
    """
    scope, values = options.scope, getattr(item, "funcargs", {})
    is_session_used = scope == "session" or "fakecloud_session" in values
    if is_session_used and SESSION_SETTINGS in values and former_session_settings is not None:
        check_unchanged(SESSION_SETTINGS, scope, values[SESSION_SETTINGS], former_session_settings)
    if scope != "function" and SETTINGS in values:
        check_narrow_settings(options, item, values[SETTINGS])
        if former_settings is not None:
            check_unchanged(SETTINGS, scope, values[SETTINGS], former_settings)


# -- after the code of a passing test --------------------------------------------------------------


def check_marker_effect(item: pytest.Item, cloud: Cloud | None, *, has_session_cloud: bool) -> None:
    """Fail a passing test whose own marker had no effect. That of a class or a module may be
    meant for its other tests.
    """
    for marker, is_of_all in _own_markers(item):
        names = {fixture_of(name) for name in marker.kwargs}
        if cloud is None:
            # Strict mode also applies to early fakes that only the application uses.
            names -= {"strict"} if has_session_cloud else set()
            if names:
                raise misuse(
                    f"{', '.join(sorted(names))} of the marker has no effect, because the test uses "
                    "no fake: request the fixture of a fake (kv_server, ...), or fakecloud for its "
                    "clock"
                )
        elif not is_of_all:
            used = cloud._context.fixture_fakes
            unused = names.intersection(SERVICES).difference(used)
            if unused:
                raise misuse(
                    f"{', '.join(sorted(unused))} of the marker has no effect, because the test "
                    "does not use that fixture: request it, or pass the settings to the fake that "
                    f"the test starts: fakecloud.{min(unused)}(...)"
                )


def _own_markers(item: Any) -> Iterator[tuple[pytest.Mark, bool]]:
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
