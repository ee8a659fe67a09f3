"""Checks that fail a test whose settings would have no effect.

They are made when the settings are known: those of markers before the fixtures of the test
(``check_markers()``), what a fixture with settings returns when a cloud is opened with it
(``check_returned_settings()``), and those that a test has of its own before its code
(``check_own_settings()``). ``fakecloud_env`` calls ``check_env()``. Last, ``check_marker_effect()``
looks at what a passing test has used.

``RunOptions.merged_settings()`` checks single values, ``check_run_options()`` the ini settings, and
``early.with_settings()`` the settings that early fakes get.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from ..cloud.cloud import Cloud
from ..cloud.services import SERVICES
from .cloud_owner import CloudOwner
from .options import PER_TEST_SETTINGS, SESSION_SETTINGS, SETTINGS, RunOptions, fixture_of, misuse
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
    options.merged_settings(item, {})
    check_own_markers(options, item)


def check_own_markers(options: RunOptions, item: pytest.Item) -> None:
    """Fail a test whose own markers cannot apply to its fakes, because they outlive it."""
    scope, scope_node = options.scope, options.node_of_scope(item)
    if scope_node is item:
        return
    shared = scope_node.listchain()
    names = {
        fixture_of(name)
        for node, marker in item.iter_markers_with_node("fakecloud")
        if node not in shared
        for name in marker.kwargs
    }
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
            f"whole {scope} {advice[scope]}"
        )


# -- what the fixtures with settings return --------------------------------------------------------


def check_returned_settings(fixture: str, returned: object, scope: str) -> None:
    """Fail a test if what a fixture with settings returns has no effect in a run whose fixtures' fakes
    last for this scope.
    """
    if not isinstance(returned, Mapping):
        raise misuse(f"the fixture {fixture} must return a dict of settings, got {returned!r}")
    names = {*map(fixture_of, returned)}
    if fixture == SETTINGS and scope == "session":
        reason = (
            "the fakes live for the whole session (fakecloud_scope or fakecloud_early): set them in "
            f"the session fixture {SESSION_SETTINGS}, and strict and env of single tests with a marker"
        )
    elif fixture == SESSION_SETTINGS and scope != "session":
        # Others, such as ``now``, are those of the cloud of ``fakecloud_session``.
        names = names.intersection((*PER_TEST_SETTINGS, *SERVICES))
        reason = (
            f"each test has its own fakes: return it from the fixture {SETTINGS}, or set "
            "fakecloud_scope = session"
        )
        if services := names.intersection(SERVICES):
            reason += (
                ", or pass the settings to the fake that you start: "
                f"fakecloud_session.{min(services)}(...)"
            )
    else:
        return
    if names:
        raise misuse(f"{', '.join(sorted(names))} in {fixture} has no effect, because {reason}")


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


def check_own_settings(
    options: RunOptions, owners: Iterable[CloudOwner], item: pytest.Item
) -> None:
    """Fail a test with settings of its own that cannot apply to the clouds of these owners, which may
    have been opened for an earlier test.

    A cloud has the settings that its fixture returned when it was opened. pytest calls another
    fixture of that name for a later test, but not the fixture of the cloud again.
    """
    # Not only when the test begins, because its fixtures can add markers.
    check_own_markers(options, item)
    arguments = getattr(item, "funcargs", {})
    if SETTINGS in arguments:
        check_returned_settings(SETTINGS, arguments[SETTINGS], options.scope)
    for owner in owners:
        fixture = owner.settings_fixture
        if arguments.get(fixture, owner.returned_settings) != owner.returned_settings:
            reasons = {
                SETTINGS: f"the fakes live for the whole {options.scope} (fakecloud_scope): override "
                f"the fixture once for the {options.scope}, and set strict and env of single tests "
                "with a marker",
                SESSION_SETTINGS: "the session's fakes start only once: override the fixture once, "
                "without parameters, in the top conftest.py",
            }
            raise misuse(
                f"{fixture} has other settings for this test than for an earlier one, but "
                f"{reasons[fixture]}"
            )


def check_env(item: pytest.Item) -> None:
    """Fail a test that requests ``fakecloud_env`` although its own marker has ``env=False``."""
    if any(marker.kwargs.get("env") is False for marker, _ in _own_markers(item)):
        raise misuse(
            "env=False of the marker and the fixture fakecloud_env contradict each other: remove "
            "one of them"
        )


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
            used = cloud._fixture_fakes
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
