"""Checks that fail a test whose settings would have no effect.

``EFFECTS`` is the table of the settings that have an effect, by where they are given, and
``reject_ineffective()`` rejects the others. These functions call it once the settings are known:

- ``check_markers()`` before the fixtures of a test, after them, and after its code, because fixtures
  and code can add markers;
- ``check_returned_settings()`` when a cloud is opened with what a fixture has returned, and for early
  fakes ``early.with_settings()``;
- ``check_marker_effect()`` after the code of a passing test, when it is known which fakes it has used.

The other checks are not in the table, because they are not about names alone: ``check_own_settings()``
compares the values of two tests, ``check_env()`` a marker with a fixture, and ``reject_parameters()``
rejects all parameters. ``RunOptions.merged_settings()`` rejects invalid names and values,
``check_run_options()`` invalid ini settings and options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from ..cloud.cloud import Cloud
from ..cloud.services import SERVICES
from .cloud_owner import CloudOwner
from .options import (
    PER_TEST_SETTINGS,
    SESSION_SETTINGS,
    SETTINGS,
    TEST_SETTINGS,
    Node,
    RunOptions,
    misuse,
    setting_name,
)
from .warning import warn

# -- which settings have an effect -----------------------------------------------------------------


class Effect(NamedTuple):
    """The settings that have an effect where they are given, and the error about others."""

    settings: frozenset[str]
    error: str = ""
    """With ``{names}`` for those of the others that are given."""
    advice_for_fakes: str = ""
    """What the error ends with if a service is among them, with ``{fake}`` for its fixture."""


_PER_TEST = frozenset(PER_TEST_SETTINGS)
_OF_CLOUD = frozenset(TEST_SETTINGS) - _PER_TEST
_OF_FAKES = frozenset(SERVICES)
_ALL = _PER_TEST | _OF_CLOUD | _OF_FAKES

MARKER_OF_TEST = "marker of a test"
"""The markers of a test that its fakes' other tests do not have: those of functions and parameters, and
in a wider scope also those of classes and modules in it.
"""
EARLY = "early fakes"
"""The case of settings that early fakes get when they have started already."""
NO_FAKE = "no fake"
ONLY_SESSION = "no fake, but a session's cloud is open"
NOT_REQUESTED = "not the fixture"
"""The cases of markers by what a passing test has used."""

_ONE_TEST = "{names} cannot be set for one test, because the fakes live for the whole "
_NO_FAKE = (
    "{names} of the marker has no effect, because the test uses no fake: request the fixture of a fake "
    "(kv_server, ...), or fakecloud for its clock"
)
# The cloud of ``fakecloud_session`` has ``now`` and others; its user starts the fakes there.
_FAKECLOUD_SESSION = Effect(
    _OF_CLOUD,
    f"{{names}} in {SESSION_SETTINGS} has no effect, because each test has its own fakes: return it "
    f"from the fixture {SETTINGS}, or set fakecloud_scope = session",
    ", or pass the settings to the fake that you start: fakecloud_session.{fake}(...)",
)

EFFECTS: Mapping[tuple[str, str], Effect] = {
    (SETTINGS, "function"): Effect(_ALL),
    (SETTINGS, "class"): Effect(_ALL),
    (SETTINGS, "module"): Effect(_ALL),
    (SETTINGS, "session"): Effect(
        frozenset(),
        f"{{names}} in {SETTINGS} has no effect, because the fakes live for the whole session "
        f"(fakecloud_scope or fakecloud_early): set them in the session fixture {SESSION_SETTINGS}, "
        "and strict and env of single tests with a marker",
    ),
    (SESSION_SETTINGS, "function"): _FAKECLOUD_SESSION,
    (SESSION_SETTINGS, "class"): _FAKECLOUD_SESSION,
    (SESSION_SETTINGS, "module"): _FAKECLOUD_SESSION,
    (SESSION_SETTINGS, "session"): Effect(_ALL),
    (SESSION_SETTINGS, EARLY): Effect(
        _ALL - {"tls"},
        f"{{names}} in {SESSION_SETTINGS} has no effect with fakecloud_early, which starts the fakes "
        "before the settings are known: set fakecloud_scope = session instead of fakecloud_early",
    ),
    (MARKER_OF_TEST, "function"): Effect(_ALL),
    (MARKER_OF_TEST, "class"): Effect(
        _PER_TEST,
        f"{_ONE_TEST}class (fakecloud_scope): set them with a marker of the class, or return them from "
        f"the fixture {SETTINGS}",
    ),
    (MARKER_OF_TEST, "module"): Effect(
        _PER_TEST,
        f"{_ONE_TEST}module (fakecloud_scope): set them in pytestmark of the module, or return them "
        f"from the fixture {SETTINGS}",
    ),
    (MARKER_OF_TEST, "session"): Effect(
        _PER_TEST,
        f"{_ONE_TEST}session (fakecloud_scope or fakecloud_early): set them in the session fixture "
        f"{SESSION_SETTINGS}",
    ),
    (MARKER_OF_TEST, NO_FAKE): Effect(frozenset(), _NO_FAKE),
    # Strict mode also applies to early fakes that only the application uses.
    (MARKER_OF_TEST, ONLY_SESSION): Effect(frozenset({"strict"}), _NO_FAKE),
    (MARKER_OF_TEST, NOT_REQUESTED): Effect(
        _PER_TEST | _OF_CLOUD,
        "{names} of the marker has no effect, because the test does not use that fixture: request it",
        ", or pass the settings to the fake that the test starts: fakecloud.{fake}(...)",
    ),
}
"""Which settings have an effect, by place and case: where they are given, and ``fakecloud_scope`` or one
of the cases above. The ini settings and options apply to all tests.
"""


def reject_ineffective(names: Iterable[str], place: str, case: str) -> None:
    """Fail the test for settings without an effect. ``place`` and ``case`` are a key of ``EFFECTS``."""
    effect = EFFECTS[place, case]
    wrong = {setting_name(name) for name in names} - effect.settings
    if not wrong:
        return
    error = effect.error.format(names=", ".join(sorted(wrong)))
    if fakes := wrong & _OF_FAKES:
        error += effect.advice_for_fakes.format(fake=min(fakes))
    raise misuse(error)


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


def check_markers(options: RunOptions, item: pytest.Item, node: Node) -> None:
    """Fail a test with invalid markers, even if it uses no fake, or with own ones that cannot apply to
    its fakes, because they outlive it: they last for ``node``.
    """
    options.merged_settings(item, {})  # Fails for unknown names and invalid values.
    shared = node.listchain()
    names = [
        name
        for marked_node, marker in item.iter_markers_with_node("fakecloud")
        if marked_node not in shared
        for name in marker.kwargs
    ]
    reject_ineffective(names, MARKER_OF_TEST, options.scope)


# -- what the fixtures with settings return --------------------------------------------------------


def check_returned_settings(fixture: str, returned: object, scope: str) -> None:
    """Fail a test if what a fixture with settings returns has no effect in a run whose fixtures' fakes
    last for this scope.
    """
    if not isinstance(returned, Mapping):
        raise misuse(f"the fixture {fixture} must return a dict of settings, got {returned!r}")
    if returned:
        reject_ineffective(returned, fixture, scope)


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
    arguments = getattr(item, "funcargs", {})
    if (settings := arguments.get(SETTINGS, {})) != {}:
        check_returned_settings(SETTINGS, settings, options.scope)
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
        if cloud is None:
            case = ONLY_SESSION if has_session_cloud else NO_FAKE
            reject_ineffective(marker.kwargs, MARKER_OF_TEST, case)
        elif not is_of_all:
            names = {*map(setting_name, marker.kwargs)}.difference(cloud._fixture_fakes)
            reject_ineffective(names, MARKER_OF_TEST, NOT_REQUESTED)


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
