"""The options and ini settings of a run, the settings of its tests, and their markers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from ..cloud.services import SERVICES, named, settings_class
from ..core.errors import ContractError, unknown_name
from ..core.ids import check_seed
from ..core.settings import (
    PROCESS_TIME,
    SWITCH,
    SWITCH_WORDS,
    TRANSPORT,
    Kind,
    Settings,
    choice,
    optional,
    read,
    setting,
    settings_of,
)
from ..core.timers import Instant, instant_us

Node: TypeAlias = pytest.Item | pytest.Collector
SETTINGS = "fakecloud_settings"
"""The fixture that a suite overrides to give the settings of tests."""
SESSION_SETTINGS = "fakecloud_session_settings"
"""The fixture that a suite overrides to give the settings of the session's fakes."""
PER_TEST_SETTINGS = ("strict", "env")
"""Settings that one test may have although its fakes outlive it."""


def ini_value(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini setting. In TOML, it may be a boolean, a number, a string or a list,
    whichever of them the setting is declared with.
    """
    try:
        return config.getini(name)
    except (TypeError, ValueError, pytest.UsageError):
        # pytest checks the types of values in the table [tool.pytest], but does not convert them.
        ini_entry: Any = getattr(config, "_inicfg", {}).get(name)
        if ini_entry is None:
            raise
        return ini_entry.value


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
        raise misuse(unknown_name("setting of fakecloud", name, (*general, *SERVICES)))
    if isinstance(value, Mapping):
        settings[name] = {**settings.get(name, {}), **value}
    else:
        raise misuse(f"the setting {name} must be a dict of that service's settings, got {value!r}")


def kinds_of(strict: object) -> tuple[str, ...]:
    """Return the kinds of violations that fail a test, given a boolean, names, or an ini value."""
    if isinstance(strict, str):
        return _kinds_in(strict)
    from ..core.violations import NAMED_KINDS, VIOLATION_KINDS

    if isinstance(strict, bool):
        return tuple(VIOLATION_KINDS) if strict else ()
    kinds = tuple(strict) if isinstance(strict, list | tuple | set | frozenset) else (str(strict),)
    valid_kinds = (*VIOLATION_KINDS, *NAMED_KINDS)
    for kind in kinds:
        if kind not in valid_kinds:
            raise misuse(
                unknown_name("kind of violation", kind, ("True", "False", *valid_kinds), "strict")
            )
    return kinds


@lru_cache
def _kinds_in(text: str) -> tuple[str, ...]:
    switch = SWITCH_WORDS.get(text.strip().lower())
    return kinds_of(text.lower().replace(",", " ").split() if switch is None else switch)


@contextmanager
def without_traceback() -> Iterator[None]:
    """Turn a ``ContractError`` into a failure without a traceback, because the plugin's frames in it do
    not help.
    """
    try:
        yield
    except ContractError as error:
        raise misuse(str(error)) from None


# -- the options of a run --------------------------------------------------------------------------

CHOICES = {
    "fakecloud_clock": ("running", "frozen"),
    "fakecloud_scope": ("function", "class", "module", "session"),
    "fakecloud_transport": ("socket", "inprocess"),
}
"""Ini settings with a list of values, the default first. An empty string also means the default."""


def check_run_options(config: pytest.Config) -> None:
    """Reject invalid options and ini settings, whether or not a test uses fakes."""
    for name, choices in CHOICES.items():
        value = ini_value(config, name)
        if value not in ("", *choices):
            raise pytest.UsageError(f"{name} = {value} is unknown: pass {' or '.join(choices)}")
    _call_sites(config)
    for name in ("fakecloud_env", "fakecloud_share_tls_context"):
        _switch(config, name)
    scope = ini_value(config, "fakecloud_scope")
    if words_of(config, "fakecloud_early") and scope not in ("", "session"):
        raise pytest.UsageError(
            f"fakecloud_early and fakecloud_scope = {scope} contradict each other: fakes that "
            "start before the first test last for the whole run. Remove one of the two settings"
        )
    strict = _strict(config)
    # Look kinds up only if necessary: a run without fakes never imports their modules.
    if strict.lower() not in SWITCH_WORDS:
        try:
            kinds_of(strict)
        except pytest.fail.Exception as error:
            raise pytest.UsageError(f"fakecloud_strict: {error.msg}") from None
    for option in ("--fakecloud-record", "--fakecloud-report"):
        folder = folder_of(config, option)
        if folder is not None:
            _check_folder(option, folder)
    if config.getoption("--fakecloud-record", None):
        from ..cloud.cloud import archive_writer

        try:
            archive_writer("--fakecloud-record")
        except ContractError as error:
            raise pytest.UsageError(str(error)) from None


def words_of(config: pytest.Config, name: str) -> list[str]:
    """Return the words of an ini setting: those of a list, of a string, or of a boolean."""
    value = ini_value(config, name)
    return [str(word) for word in value] if isinstance(value, list) else str(value).split()


def _strict(config: pytest.Config) -> str:
    return " ".join(words_of(config, "fakecloud_strict"))


def _switch(config: pytest.Config, name: str, others: str = "") -> bool:
    value = ini_value(config, name)
    switch = SWITCH_WORDS.get(str(value).strip().lower())
    if switch is None:
        raise pytest.UsageError(f"{name} = {value} is unknown: pass {others}true or false")
    return switch


def _call_sites(config: pytest.Config) -> bool | None:
    """Return whether call sites are recorded; None if that depends on the test."""
    if ini_value(config, "fakecloud_call_sites") == "auto":
        return None
    return _switch(config, "fakecloud_call_sites", "auto, ")


def _check_folder(option: str, folder: Path) -> None:
    """Reject a folder that cannot be created, because the nearest existing place is a file."""
    try:
        for place in (folder, *folder.parents):
            # Path.exists() would also hide other errors.
            with suppress(FileNotFoundError, NotADirectoryError):
                place.stat()
                break
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {error}") from None
    if not place.is_dir():
        raise pytest.UsageError(f"{option}={folder} cannot be a folder: {place} is a file")


# -- the settings of a test ------------------------------------------------------------------------

_INSTANT = Kind(
    Instant,
    "an aware datetime, or an ISO string with an offset such as '2026-01-01T00:00:00Z'",
    lambda value: value is not None,
    instant_us,
)
_SEED = Kind(int | str, "a whole number or a string", lambda value: value is not None, check_seed)
_STRICT: Kind[Any] = Kind(
    bool | str | Sequence[str],
    "True, False, or names of kinds of violations",
    lambda value: isinstance(value, bool | str | list | tuple | set | frozenset),
)


class CloudConfig(Settings):
    """The settings of a test's cloud.

    None means the default: the ini setting of the same name (``fakecloud_clock``), if there is one.
    """

    now: Any = setting(None, optional(_INSTANT))
    """The initial time of the clock; the current time by default."""
    clock: Literal["running", "frozen"] | None = setting(
        None, optional(choice("running", "frozen"))
    )
    """``"running"``: it follows real time. ``"frozen"``: it moves only when a test moves it."""
    seed: Any = setting(None, optional(_SEED))
    """The seed of all ids and random values; the test's node id by default."""
    process_time: bool | Literal["autojump"] = setting(False, PROCESS_TIME)
    """Whether ``time.time()`` and ``datetime.now()`` follow the clock, which is then frozen; with
    ``"autojump"``, sleeping also moves the clock (extra ``time``).
    """
    strict: Any = setting(None, optional(_STRICT))
    """The kinds of strict-mode violations that fail a passing test."""
    env: bool | None = setting(None, optional(SWITCH))
    """Whether to set the environment variables that official clients read."""
    transport: Literal["socket", "inprocess"] | None = setting(None, optional(TRANSPORT))
    """How requests, httpx and urllib3 reach the fakes; ``"inprocess"`` skips the socket."""
    tls: bool = setting(False, SWITCH)
    """Whether the fakes serve HTTPS (extra ``tls``)."""


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
        self.reports_passing = self.journal_when == "always" or bool(
            self.recordings or self.timelines
        )
        """Whether passing tests are also reported, recorded or kept."""
        self._call_sites = _call_sites(config)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The settings of a cloud without markers, from the options and the ini file."""
        config = self.config
        return {name: setting.default for name, setting in settings_of(CloudConfig).items()} | {
            "clock": "frozen" if ini_value(config, "fakecloud_clock") == "frozen" else None,
            "strict": kinds_of(_strict(config)),
            "env": _switch(config, "fakecloud_env"),
            "seed": config.getoption("--fakecloud-seed", None) or None,
            "transport": ini_value(config, "fakecloud_transport"),
            "share_tls_context": _switch(config, "fakecloud_share_tls_context"),
        }

    def merged_settings(self, node: Node | None, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a test, or those that the tests of a class or module have in common:
        markers of the function > of the class > of the module > the ``value`` of the fixture with the
        settings of their cloud > options > ini. Settings of a service are merged key by key.
        """
        merged = dict(self.defaults)
        layers = [value, *markers_of(node)]
        if not any(layers):
            return merged
        cloud_settings = settings_of(CloudConfig)
        for layer in layers:
            for name, value in layer.items():
                if name in cloud_settings:
                    with without_traceback():
                        cloud_settings[name].kind.read(name, value)
                    merged[name] = self.defaults[name] if value is None else value
                else:
                    merge_service(merged, fixture_of(name), value, cloud_settings)
        merged["strict"] = kinds_of(merged["strict"])
        # Check the merged settings, because some only go together; even if the test has no such fake.
        for name, service in SERVICES.items():
            if name in merged:
                with without_traceback():
                    read(settings_class(service), merged[name], name)
        if merged["process_time"]:
            self._check_process_time(merged)
        return merged

    def _check_process_time(self, settings: Mapping[str, Any]) -> None:
        from ..core.clock import STANDS

        if settings["clock"] == "running":
            raise misuse(f"clock='running' is not possible: {STANDS}")
        ini = ini_value(self.config, "fakecloud_clock")
        if settings["clock"] is None and ini == "running":
            raise misuse(
                "process_time is not possible with fakecloud_clock = running: a clock cannot follow "
                "the time that follows it. Remove that line, because running is the default, or pass "
                "clock='frozen'"
            )

    def wants_call_sites(self, item: pytest.Item | None) -> bool:
        """Return whether the calls of a test are recorded with the source lines that made them."""
        if self._call_sites is not None:
            return self._call_sites
        if self.timelines is not None:
            return True
        failed = self._last_failed
        # Usually none did; pytest puts a node ID together each time it is read.
        return bool(failed) and item is not None and item.nodeid in failed

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


def markers_of(node: Node | None) -> list[Mapping[str, Any]]:
    """Return the keywords of the markers that apply to a test, class or module, the nearest last."""
    # The same as ``node.iter_markers()`` in reverse, which takes longer than the rest of a fixture.
    keywords: list[Mapping[str, Any]] = []
    current: Any = node
    while current is not None:
        for marker in current.own_markers:
            if marker.name == "fakecloud":
                if marker.args:
                    raise misuse(f"the fakecloud marker takes keywords only, got {marker.args!r}")
                keywords.append(marker.kwargs)
        current = current.parent
    keywords.reverse()
    return keywords
