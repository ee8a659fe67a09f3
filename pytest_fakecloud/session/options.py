"""The options of a run, and the merged settings of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from ..services import SERVICES, named

Node: TypeAlias = pytest.Item | pytest.Collector
T = TypeVar("T")
SETTINGS = "fakecloud_settings"
"""The fixture that a suite overrides to give the settings of tests."""
SESSION_SETTINGS = "fakecloud_session_settings"
"""The fixture that a suite overrides to give the settings of the session's fakes."""
PER_TEST_SETTINGS = ("strict", "env")
"""Settings that one test may have although its fakes outlive it."""


def is_set_to(config: pytest.Config, name: str, value: str) -> bool:
    """Return whether the user set a setting to this value; False if that is only its default."""
    found = config.getini(name)
    return found == value and type(found) is str


def folder_of(config: pytest.Config, option: str) -> Path | None:
    folder = config.getoption(option, None)
    return config.invocation_params.dir / folder if folder else None


def misuse(text: str) -> BaseException:
    """Return the failure of a test with an invalid setting, which pytest shows without a traceback."""
    return pytest.fail.Exception(f"fakecloud: {text}", pytrace=False)


def fixture_of(name: str) -> str:
    """Return the fixture's name for a service's word (``kv``); return any other name unchanged."""
    service = named(name)
    return name if service is None else service.fixture


def merge_service(settings: dict[str, Any], name: str, value: Any, general: Iterable[str]) -> None:
    """Merge one fake's settings into the existing ones, key by key."""
    if name not in SERVICES:
        from ..core.wording import unknown_name

        raise misuse(unknown_name("setting of fakecloud", name, (*general, *SERVICES)))
    if isinstance(value, Mapping):
        settings[name] = {**settings.get(name, {}), **value}
    else:
        raise misuse(f"the setting {name} must be a dict of that service's settings, got {value!r}")


def _check_service_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Reject unknown settings of a service, even if no fixture of the test starts a fake of it."""
    from ..core.errors import ContractError
    from ..core.settings import read
    from ..services import handle_class

    try:
        read(handle_class(SERVICES[name])._settings, settings, name)
    except ContractError as error:
        raise misuse(str(error)) from None


def switch_of(text: str) -> bool | None:
    """Parse the boolean in an ini file; return None for other words."""
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off", "") else None


def kinds_of(strict: object) -> tuple[str, ...]:
    """Return the kinds of violations that fail a test, given a boolean, names, or an ini value."""
    return _kinds_of_text(strict) if isinstance(strict, str) else _kinds(strict)


@cache
def _kinds_of_text(text: str) -> tuple[str, ...]:
    switch = switch_of(text)
    return _kinds(text.lower().replace(",", " ").split() if switch is None else switch)


def _kinds(value: object) -> tuple[str, ...]:
    from ..core.problems import NAMED_KINDS, PROBLEM_KINDS
    from ..core.wording import unknown_name

    if isinstance(value, bool):
        return tuple(PROBLEM_KINDS) if value else ()
    kinds = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (str(value),)
    known = (*PROBLEM_KINDS, *NAMED_KINDS)
    for kind in kinds:
        if kind not in known:
            raise misuse(unknown_name("kind of problem", kind, ("True", "False", *known), "strict"))
    return kinds


def without_traceback(make: Callable[[], T]) -> T:
    """Call a function; turn its ``ContractError`` into a failure without a traceback."""
    try:
        return make()
    except Exception as error:
        from ..core.errors import ContractError

        if not isinstance(error, ContractError):
            raise
        # Fail without a traceback: the plugin's frames do not help.
        raise misuse(str(error)) from None


class RunOptions:
    """The options and ini settings of a pytest run, and the settings of its tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.journal_when = str(config.getoption("--fakecloud-journal"))
        """When a test's report shows the journal: failed, always or never."""
        self.recordings = folder_of(config, "--fakecloud-record")
        """The folder for HTTP archives of the tests' calls, or None."""
        self.timelines = folder_of(config, "--fakecloud-report")
        """The folder for timelines of failing tests, or None."""
        self.reports_passing = self.journal_when == "always" or self.recordings is not None
        """Whether passing tests are also reported or recorded."""
        self.scope = (
            "session" if config.getini("fakecloud_early") else str(config.getini("fakecloud_scope"))
        )
        """How long the fakes of fixtures last: function, class, module or session."""

    @cached_property
    def fixtures(self) -> frozenset[str]:
        """The names of all fixtures that return fakes."""
        aliases = (service.alias for service in SERVICES.values() if service.alias is not None)
        return frozenset((*SERVICES, *aliases, "fakecloud", "fakecloud_env"))

    @cached_property
    def _known(self) -> Mapping[str, Any]:
        """The settings of a whole cloud."""
        from ..core.settings import settings_of
        from ..marker import MarkerConfig

        return settings_of(MarkerConfig)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The settings of a cloud without markers, from the options and the ini file."""
        config = self.config
        return {name: each.default for name, each in self._known.items()} | {
            "clock": "frozen" if config.getini("fakecloud_clock") == "frozen" else None,
            "strict": config.getini("fakecloud_strict"),
            "env": config.getini("fakecloud_env"),
            "seed": config.getoption("--fakecloud-seed", None),
            "transport": config.getini("fakecloud_transport"),
            "share_tls_context": config.getini("fakecloud_share_tls_context"),
        }

    def settings_of(self, node: Node, *fixtures: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a test, or of all tests of a class or module:
        function > class > module > fixtures > options > ini.

        ``fixtures`` are the settings returned by fixtures; later ones override earlier ones.
        Settings of a service are merged key by key. An unknown key fails the test.
        """
        return self.merged(node.nodeid, [*fixtures, *markers_of(node)])

    def merged(self, seed: Any, layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the settings of several layers, of which later ones override earlier ones."""
        settings = dict(self.defaults)
        settings["seed"] = default_seed = settings["seed"] or seed
        known = self._known
        for layer in layers:
            for name, value in layer.items():
                if name in known:
                    without_traceback(partial(known[name].kind.read, name, value))
                    default = default_seed if name == "seed" else self.defaults[name]
                    settings[name] = default if value is None else value
                else:
                    merge_service(settings, fixture_of(name), value, known)
        # Check the merged settings of a service, because some only go together.
        for name in SERVICES:
            if name in settings:
                _check_service_settings(name, settings[name])
        if settings["process_time"]:
            self._check_process_time(settings)
        return settings

    def _check_process_time(self, settings: Mapping[str, Any]) -> None:
        from ..core.timekeeper import STANDS

        if settings["clock"] == "running":
            raise misuse(f"clock='running' is not possible: {STANDS}")
        if settings["clock"] is None and is_set_to(self.config, "fakecloud_clock", "running"):
            raise misuse(
                "process_time is not possible with fakecloud_clock = running: a clock cannot follow "
                "the time that follows it. Remove that line, because running is the default, or pass "
                "clock='frozen'"
            )

    def wants_call_sites(self, item: pytest.Item | None) -> bool:
        """Return whether the calls of a test are recorded with the source lines that made them."""
        wanted = self.config.getini("fakecloud_call_sites")
        if wanted != "auto":
            return bool(wanted == "true")
        return self.timelines is not None or (item is not None and item.nodeid in self._last_failed)

    @cached_property
    def _last_failed(self) -> frozenset[str]:
        """The tests that failed in the last run, from pytest's cache."""
        cache = getattr(self.config, "cache", None)
        return frozenset(cache.get("cache/lastfailed", {}) if cache is not None else ())

    def owner_of(self, item: pytest.Item) -> Node:
        """Return what the fakes of a test's fixtures last for: test, class, module or session."""
        if self.scope == "session":
            return item.session
        if self.scope == "module":
            return item.getparent(pytest.Module) or item
        return (item.getparent(pytest.Class) if self.scope == "class" else None) or item

    def check_own_settings(self, item: pytest.Item, fixture: Mapping[str, Any]) -> None:
        """Fail a test whose own settings cannot apply to its fakes, because they outlive it.

        ``fixture`` are the settings that ``fakecloud_settings`` returned.
        """
        owner = self.owner_of(item)
        if owner is item:
            return
        shared = owner.listchain()
        names = {
            fixture_of(name)
            for node, marker in item.iter_markers_with_node("fakecloud")
            if node not in shared
            for name in marker.kwargs
        }
        if self.scope == "session":
            names.update(map(fixture_of, fixture))
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
                f"whole {self.scope} {advice[self.scope]}"
            )


def markers_of(node: Node) -> list[Mapping[str, Any]]:
    """Return the keywords of the markers that apply to a test, class or module, the nearest last."""
    markers = list(node.iter_markers("fakecloud"))
    for marker in markers:
        if marker.args:
            raise misuse(f"the fakecloud marker takes keywords only, got {marker.args!r}")
    return [marker.kwargs for marker in reversed(markers)]
