"""The options of a run, the settings of its tests, and their markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pytest

from ..cloud.config import CloudConfig
from ..cloud.services import SERVICES, named, settings_class
from ..core.errors import ContractError, unknown_name
from ..core.settings import (
    SWITCH,
    Kind,
    Setting,
    Settings,
    optional,
    read,
    read_some,
    setting,
    settings_of,
)
from .ini import folder_of, given_value, kinds_of, strict_words, value_of

S = TypeVar("S", bound=Settings)
Node: TypeAlias = pytest.Item | pytest.Collector
SETTINGS = "fakecloud_settings"
"""The fixture that a suite overrides to give the settings of tests."""
SESSION_SETTINGS = "fakecloud_session_settings"
"""The fixture that a suite overrides to give the settings of the session's fakes."""


def misuse(text: str) -> BaseException:
    """Return the failure of a test with an invalid setting, which pytest shows without a traceback,
    because the plugin's frames in it do not help.
    """
    return pytest.fail.Exception(f"fakecloud: {text}", pytrace=False)


def fixture_of(name: str) -> str:
    """Return the fixture's name for a service's word (``kv``); return any other name unchanged."""
    service = named(name)
    return name if service is None else service.fixture


def setting_name(name: str) -> str:
    """Return the name of a setting of a test, that of a fixture for a service's word. Fail the test for
    any other name.
    """
    name = fixture_of(name)
    if name not in TEST_SETTINGS and name not in SERVICES:
        raise misuse(unknown_name("setting of fakecloud", name, (*TEST_SETTINGS, *SERVICES)))
    return name


# -- the settings of a test ------------------------------------------------------------------------

_STRICT: Kind[tuple[str, ...]] = Kind(
    bool | str | Sequence[str],
    "True, False, or names of kinds of violations",
    lambda value: isinstance(value, bool | str | list | tuple | set | frozenset),
    kinds_of,
)


class PerTestConfig(Settings):
    """The settings that one test may have although its fakes outlive it."""

    strict: Any = setting(None, optional(_STRICT))
    """The kinds of strict-mode violations that fail a passing test."""
    env: bool | None = setting(None, optional(SWITCH))
    """Whether to set the environment variables that official clients read."""


_OF_RUN = ("delivery", "share_tls_context")
"""Settings of a cloud that depend on the run, not on a test."""
TEST_SETTINGS: Mapping[str, Setting] = {
    name: setting
    for declared in (CloudConfig, PerTestConfig)
    for name, setting in settings_of(declared).items()
    if name not in _OF_RUN
}
"""The settings of a test, except those of its fakes. None means the default: the ini setting of the
same name (``fakecloud_clock``), if there is one.
"""
PER_TEST_SETTINGS = tuple(settings_of(PerTestConfig))


class MergedSettings(NamedTuple):
    """The settings of the fakes of a test, or of those that the tests of a class or module share."""

    cloud: CloudConfig
    """The settings of their cloud."""
    fakes: Mapping[str, Mapping[str, Any]]
    """The settings of the fixtures' fakes, by fixture name."""


class RunOptions:
    """The options and ini settings of a pytest run, and the settings of its tests."""

    def __init__(self, config: pytest.Config, scope: str) -> None:
        self.config = config
        self.scope = scope
        """How long the fakes of fixtures last: function, class, module or session."""
        self.journal_when = str(config.getoption("--fakecloud-journal"))
        """When a test's report shows the journal: failed, always or never."""
        self.recordings = folder_of(config, "--fakecloud-record")
        """The folder for HTTP archives of the tests' calls, or None."""
        self.timelines = folder_of(config, "--fakecloud-report")
        """The folder for timelines of failing tests, or None."""
        self.traces = config.getoption("--fakecloud-otlp", None) or None
        """Where the traces of the tests are exported to: a URL or the path of a file, or None."""
        self.reports_passing = self.journal_when == "always" or bool(
            self.recordings or self.timelines or self.traces
        )
        """Whether passing tests are also reported, recorded or kept."""
        self._call_sites = value_of(config, "fakecloud_call_sites")

    @cached_property
    def cloud_defaults(self) -> CloudConfig:
        """The settings of the cloud of a test without markers."""
        config = self.config
        return CloudConfig(
            # Not "running", because a clock of which "now" is set is frozen unless a test says so.
            clock="frozen" if value_of(config, "fakecloud_clock") == "frozen" else None,
            seed=config.getoption("--fakecloud-seed", None) or None,
            transport=value_of(config, "fakecloud_transport"),
            share_tls_context=value_of(config, "fakecloud_share_tls_context"),
        )

    @cached_property
    def per_test_defaults(self) -> PerTestConfig:
        """``strict`` and ``env`` of a test without markers."""
        strict, env = strict_words(self.config), value_of(self.config, "fakecloud_env")
        return PerTestConfig(strict=kinds_of(strict), env=env)

    def merged_settings(
        self, node: Node | None, returned_settings: Mapping[str, Any]
    ) -> MergedSettings:
        """Return all settings of the fakes of a test, or those that the tests of a class or module have
        in common: markers of the function > of the class > of the module > the ``returned_settings`` of
        the fixture of their cloud > options > ini. Settings of a service are merged key by key.

        Fail the test for unknown names and invalid values, those of ``strict`` and ``env`` included.
        """
        settings: dict[str, Any] = {}
        fakes: dict[str, dict[str, Any]] = {}
        for layer in (returned_settings, *markers_of(node)):
            for name, value in layer.items():
                if (fixture := setting_name(name)) in SERVICES:
                    _merge_fake(fakes, fixture, value)
                else:
                    settings[name] = value
        # Check the merged settings, because some only go together; even if the test has no such fake.
        cloud = _with(self.cloud_defaults, settings) if settings else self.cloud_defaults
        for fixture, fake_settings in fakes.items():
            try:
                read(settings_class(SERVICES[fixture]), fake_settings, fixture)
            except ContractError as error:
                raise misuse(str(error)) from None
        if cloud.process_time:
            self._check_ini_clock(cloud)
        if settings:
            _with(self.per_test_defaults, settings)  # Fails for invalid values.
        return MergedSettings(cloud, fakes)

    def per_test_settings(
        self, node: Node | None, returned_settings: Mapping[str, Any]
    ) -> PerTestConfig:
        """Return only ``strict`` and ``env`` of the merged settings, which a test has although its fakes
        outlive it. Fail the test for invalid values of these two.
        """
        settings: dict[str, Any] = {}
        for layer in (returned_settings, *markers_of(node)):
            settings.update(layer)
        return _with(self.per_test_defaults, settings) if settings else self.per_test_defaults

    def _check_ini_clock(self, cloud: CloudConfig) -> None:
        """Fail a test that sets the process's time, for a contradiction that ``CloudConfig`` cannot see:
        it gets no clock for the ini setting ``running``, because that is the default.
        """
        if cloud.clock is None and given_value(self.config, "fakecloud_clock") == "running":
            raise misuse(
                "process_time is not possible with fakecloud_clock = running: a clock cannot follow "
                "the time that follows it. Remove that line, because running is the default, or pass "
                "clock='frozen'"
            )

    def wants_call_sites(self, item: pytest.Item | None) -> bool:
        """Return whether the calls of a test are recorded with the source lines that made them."""
        if self._call_sites != "auto":
            return bool(self._call_sites)
        if self.timelines is not None:
            return True
        return item is not None and item.nodeid in self._last_failed

    @cached_property
    def _last_failed(self) -> frozenset[str]:
        """The tests that failed in the last run, from pytest's cache."""
        cache = getattr(self.config, "cache", None)
        return frozenset(cache.get("cache/lastfailed", {}) if cache is not None else ())

    def node_of_scope(self, item: pytest.Item) -> Node:
        """Return what the fakes of a test's fixtures last for: test, class, module or session."""
        if self.scope == "function":
            return item
        if self.scope == "session":
            return item.session
        if self.scope == "module":
            return item.getparent(pytest.Module) or item
        return (item.getparent(pytest.Class) if self.scope == "class" else None) or item


def _with(defaults: S, settings: Mapping[str, Any]) -> S:
    """Return the defaults of a class of settings, changed by those of its settings that a test has. None
    means the default. Fail the test for invalid values.
    """
    declared = type(defaults)
    changes = {
        name: settings[name] for name in settings_of(declared) if settings.get(name) is not None
    }
    try:
        return declared(**{**vars(defaults), **read_some(declared, changes, "")})
    except ContractError as error:
        raise misuse(str(error)) from None


def _merge_fake(fakes: dict[str, dict[str, Any]], fixture: str, settings: Any) -> None:
    """Merge settings of a fixture's fake into those that it has already."""
    if not isinstance(settings, Mapping):
        raise misuse(
            f"the setting {fixture} must be a dict of that service's settings, got {settings!r}"
        )
    fakes[fixture] = {**fakes.get(fixture, {}), **settings}


def markers_of(node: Node | None) -> list[Mapping[str, Any]]:
    """Return the keywords of the markers that apply to a test, class or module, the nearest last."""
    keywords: list[Mapping[str, Any]] = []
    for marker in () if node is None else node.iter_markers("fakecloud"):
        if marker.args:
            raise misuse(f"the fakecloud marker takes keywords only, got {marker.args!r}")
        keywords.insert(0, marker.kwargs)
    return keywords
