"""The state of one pytest run: the current test, its cloud, and the cloud that outlives tests.

Imported when a test first uses a fake. The fakes are imported when needed. In runs with early
fakes, this module is also a plugin, because of its fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import walk_packages
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest

from ... import __path__
from ...core.errors import ContractError, unknown_name
from ...core.libraries import add_test
from ...core.timers import monotonic
from ...process.replace import Hooks
from ..base import close_with_fixtures
from ..cloud import Cloud
from ..services import SERVICES, services_by_word
from .clouds import LastingCloud, SessionCloud, new_cloud, publish_env
from .options import (
    SESSION_SETTINGS,
    SETTINGS,
    RunOptions,
    check_settings,
    fixture_of,
    kinds_of,
    markers_of,
    misuse,
    own_markers,
    without_traceback,
    words_of,
)
from .warning import warn

if TYPE_CHECKING:
    from ...reporting.applications import Listener, ServedRequest

try:
    import resource
except ImportError:  # Windows has no ``resource`` module.
    resource = None  # type: ignore[assignment]


@dataclass
class TestState:
    """The state of the current test. ``strict`` are the kinds of violations that fail the test, if
    known; ``ends`` are called at its end. ``has_ended`` tells whether its own code has: pytest also
    reports each subtest, before. ``recorded`` are the entries of the journal in its recording.
    """

    __test__ = False

    item: pytest.Item | None = None
    cloud: Cloud | None = None
    is_reported: bool = False
    has_ended: bool = False
    has_failed_subtest: bool = False
    recorded: list[Any] = field(default_factory=list)
    strict: tuple[str, ...] | None = None
    ends: list[Callable[[], object]] = field(default_factory=list)


class Run:
    """The state that the hooks and fixtures of one pytest run share: the current ``test``, and the
    clouds that outlive tests, one for the session and one for the current class or module.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.options = RunOptions(config)
        self.test = TestState()
        self.session_cloud = SessionCloud(self.options)
        self._scope_cloud = LastingCloud(self.options)
        self._lasting = (self._scope_cloud, self.session_cloud)
        self._own_settings: Mapping[str, Any] = {}
        """The settings that ``fakecloud_settings`` returned for the fixtures' fakes."""
        self.sleep = SleepMeter()
        self.observation = Observation(self.options)
        self._environment = pytest.MonkeyPatch()
        self._test_environment = pytest.MonkeyPatch()
        self._process_changes: Hooks | None = None
        self._has_warned = False
        """Whether a test has warned of settings of the session without an effect."""

    # -- clouds ----------------------------------------------------------------------------------

    @without_traceback
    def open_cloud(self, own: Any, session_settings: Any) -> Cloud:
        """Return the cloud of the fixtures; ``own`` is the value of ``fakecloud_settings``, and
        ``session_settings`` that of ``fakecloud_session_settings``.
        """
        item, scope = self.test.item, self.options.scope
        assert item is not None, "fixtures of fakes are for tests"
        if not isinstance(own, (dict, Mapping)):
            raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {own!r}")
        if session_settings and scope != "session":
            self._warn_of_session_settings(item)
        self._own_settings = own
        owner, settings = self.options.owner_of(item), None
        if owner is not item:
            self.options.check_own_settings(item, own)
        if scope == "session":
            cloud = self.session_cloud.open(session_settings)
        elif owner is not item:
            cloud = self._scope_cloud.create([own, *markers_of(owner)], "driven")
        else:
            settings = self.options.settings_of(item, own)
            if self._process_changes is None:
                # Keep a cloud's process-wide patches, because reapplying them for each test is costly.
                from ...process.surroundings import changes_for

                self._process_changes = changes_for(
                    settings["share_tls_context"], settings["transport"] == "inprocess"
                )
                self._process_changes.enter()
            cloud = new_cloud(settings, "driven")
        try:
            self._use(cloud, settings or self._settings(item))
        except BaseException:
            self.close_cloud(cloud)
            raise
        return cloud

    def close_cloud(self, cloud: Cloud) -> None:
        """Close the cloud of the fixtures at the end of their scope, unless it lasts for the run."""
        if cloud is self._scope_cloud.cloud:
            self._scope_cloud.close()
        elif cloud is not self.session_cloud.cloud:
            close_with_fixtures(cloud)

    def _use(self, cloud: Cloud, settings: Mapping[str, Any]) -> None:
        """Let the current test use a cloud."""
        test = self.test
        test.strict = kinds_of(settings["strict"])
        test.cloud = cloud
        self.observation.observe(cloud, test.item)
        if settings["env"]:
            # Undo changes in the reverse order: a test's own monkeypatch begins after wider fixtures.
            patch, request = self._test_environment, getattr(test.item, "_request", None)
            if self.options.scope == "function" and request is not None:
                patch = request.getfixturevalue("monkeypatch")
            test.ends += [publish_env(cloud, patch), self._test_environment.undo]

    def _warn_of_session_settings(self, item: pytest.Item) -> None:
        """Warn once of settings of the session in a run whose fixtures do not use them."""
        if self._has_warned:
            return
        self._has_warned = True
        if any(
            "fakecloud_session" in getattr(other, "fixturenames", ())
            for other in item.session.items
        ):
            return
        warn(
            item,
            f"the fixture {SESSION_SETTINGS} has no effect, because no fakes of this run last for the "
            "session and no test requests fakecloud_session: override fakecloud_settings, or set "
            "fakecloud_scope = session",
        )

    def _settings(self, item: pytest.Item) -> dict[str, Any]:
        base = self.session_cloud.settings_of_tests if self.options.scope == "session" else {}
        return self.options.settings_of(item, base, self._own_settings)

    @without_traceback
    def open_session(self, settings: Any) -> Cloud:
        """Return the cloud that lasts for the run."""
        return self.session_cloud.open(settings)

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.test.cloud is not None or any(lasting.cloud for lasting in self._lasting)

    def clouds(self) -> list[Cloud]:
        """Return the test's own cloud and those that outlive it, if they were used: an application
        may call fakes that no test requests.
        """
        if self.test.item is not None:
            self._use_existing(self.test.item)
        requested = self.test.cloud
        clouds = [] if requested is None else [requested]
        for lasting in self._lasting:
            cloud = lasting.cloud
            if cloud is None or cloud is requested:
                continue
            if cloud._context.recorder.entries or cloud.violations():
                clouds.append(cloud)
        return clouds

    def hints(self, cloud: Cloud, item: pytest.Item) -> list[str]:
        """Return the hints about a cloud that outlives tests."""
        return [
            hint
            for lasting in self._lasting
            if lasting.cloud is cloud
            for hint in lasting.lost.hints(item)
        ]

    def strict_kinds(self) -> tuple[str, ...]:
        """Return the kinds of strict-mode violations that fail the current test."""
        test = self.test
        if test.strict is not None:
            return test.strict
        # Read the settings of a test without fakes only if a cloud that outlives it has violations.
        if test.item is None or not any(cloud.violations() for cloud in self.clouds()):
            return ()
        test.strict = kinds_of(self._settings(test.item)["strict"])
        return test.strict

    def start_early(self, names: list[str]) -> None:
        for variable, value in self.session_cloud.start_early(names).items():
            self._environment.setenv(variable, value)

    def _undo_process_changes(self) -> None:
        if self._process_changes is not None:
            self._process_changes.leave()
            self._process_changes = None
        self.observation.close()

    # -- between tests ---------------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Return every fake to its baseline and remove all traces of earlier tests."""
        self.end_test()
        self.test = TestState(item)
        add_test(str(item.path))
        if self._process_changes is not None and not _names_fakes(item):
            self._undo_process_changes()
        for lasting in self._lasting:
            lasting.return_to_baseline(item)
        if self.options.scope == "function":
            self._own_settings = {}
        else:
            self._use_existing(item)

    def _use_existing(self, item: pytest.Item) -> None:
        """Let a test use the fixtures' cloud that exists already. pytest keeps the values of fixtures
        with a wide scope, so a later test that requests them at run time does not call the fixtures.
        """
        if self.options.scope == "function" or self.test.cloud is not None:
            return
        cloud = (self.session_cloud if self.options.scope == "session" else self._scope_cloud).cloud
        if cloud is not None and _is_user(item):
            self._use(cloud, self._settings(item))

    def begin_call(self) -> None:
        """Mark calls made before the test's own code, and start measuring how long it sleeps."""
        self.sleep.start()
        if self.test.item is not None:
            self._use_existing(self.test.item)
            self._check_settings(self.test.item)
        cloud = self.test.cloud or self.session_cloud.cloud
        if cloud is not None:
            self.observation.observe(cloud, self.test.item)
        for lasting in self._lasting:
            lasting.begin_call()

    def _check_settings(self, item: pytest.Item) -> None:
        """Fail a test whose settings cannot apply to the clouds that outlive it. pytest returns the
        value of a fixture of a wide scope without looking at the settings again.
        """
        scope = self.options.scope
        if scope == "function" and self.session_cloud.cloud is None:
            return
        funcargs = getattr(item, "funcargs", {})
        is_session_used = scope == "session" or "fakecloud_session" in funcargs
        if (
            is_session_used
            and SESSION_SETTINGS in funcargs
            and self.session_cloud.cloud is not None
        ):
            self.session_cloud.open(funcargs[SESSION_SETTINGS])
        if scope != "function" and SETTINGS in funcargs:
            self._check_own(item, funcargs[SETTINGS])

    def _check_own(self, item: pytest.Item, own: Mapping[str, Any]) -> None:
        """Apply the value of ``fakecloud_settings`` of a test whose fakes outlive it; fail the test
        if more than strict mode differs from an earlier one.
        """
        self.options.check_own_settings(item, own)
        if own == self._own_settings:
            return
        present, former = (
            {name: value for name, value in layer.items() if name != "strict"}
            for layer in (own, self._own_settings)
        )
        if self.test.cloud is not None and present != former:
            scope = self.options.scope
            raise misuse(
                f"{SETTINGS} has other settings for this test than for an earlier one, but the fakes "
                f"live for the whole {scope} (fakecloud_scope): override the fixture once for the "
                f"{scope}"
            )
        self._own_settings = own
        if self.test.cloud is not None:
            self.test.strict = kinds_of(self._settings(item)["strict"])

    def check_marker(self, item: pytest.Item) -> None:
        """Fail a passing test whose own marker had no effect. That of a class or a module may be
        meant for its other tests.
        """
        test = self.test
        for marker, is_of_all in own_markers(item):
            names = {fixture_of(name) for name in marker.kwargs}
            if test.cloud is None:
                # Strict mode also applies to early fakes that only the application uses.
                names -= {"strict"} if self.session_cloud.cloud is not None else set()
                if names:
                    raise misuse(
                        f"{', '.join(sorted(names))} of the marker has no effect, because the test uses "
                        "no fake: request the fixture of a fake (kv_server, ...), or fakecloud for its "
                        "clock"
                    )
            elif not is_of_all:
                used = test.cloud._context.fixture_fakes
                unused = names.intersection(SERVICES).difference(used)
                if unused:
                    raise misuse(
                        f"{', '.join(sorted(unused))} of the marker has no effect, because the test "
                        "does not use that fixture: request it, or pass the settings to the fake that "
                        f"the test starts: fakecloud.{min(unused)}(...)"
                    )

    def check_env(self) -> None:
        """Fail a test that requests ``fakecloud_env`` although its own marker has ``env=False``."""
        item = self.test.item
        if item is not None and any(
            marker.kwargs.get("env") is False for marker, _ in own_markers(item)
        ):
            raise misuse(
                "env=False of the marker and the fixture fakecloud_env contradict each other: remove "
                "one of them"
            )

    def end_test(self) -> None:
        """Release the test's cloud; otherwise its data would be kept in memory until the run ends."""
        if self.test.item is None:
            return
        for end in self.test.ends:
            end()
        self.test = TestState()
        self.observation.pause()

    def close(self) -> None:
        self.end_test()
        self._environment.undo()
        self._undo_process_changes()
        for lasting in self._lasting:
            lasting.close()


def _names_fakes(item: pytest.Item) -> bool:
    """Return whether a test requests the fixtures' cloud by name, directly or by its fixtures."""
    return "fakecloud" in getattr(item, "fixturenames", ())


def _is_user(item: pytest.Item) -> bool:
    """Return whether a test has requested the fixtures' cloud, or may do so: a doctest can request
    fixtures at run time only.
    """
    requested_so_far = getattr(getattr(item, "_request", None), "_fixture_defs", ())
    return (
        _names_fakes(item)
        or "fakecloud" in requested_so_far
        or isinstance(item, pytest.DoctestItem)
    )


# -- what a run records of a test ------------------------------------------------------------------

_FRAMEWORKS = frozenset({"flask", "django.core.signals", "starlette.testclient", "httpx"})
"""Modules of frameworks whose requests are observed (see ``reporting.applications``)."""


class Observation:
    """Records the source lines of calls, their times, and the requests that the application serves."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._has_report = options.journal_when != "never" or options.timelines is not None
        self._listener: Listener | None = None
        self._cloud: Cloud | None = None
        """The cloud of the current test."""

    def observe(self, cloud: Cloud, item: pytest.Item | None) -> None:
        """Record what the report of a test needs, from now on or since an earlier call."""
        options = self._options
        if cloud is not self._cloud:
            self._cloud = cloud
            recorded = cloud._context.recorder.shared
            recorded.find_site = None
            if options.wants_call_sites(item):
                from ...process.call_sites import call_site

                recorded.find_site = call_site
            if self._has_report and recorded.find_lines is None:
                from ...process.lines import Lines

                recorded.find_lines = Lines()
            if options.timelines is not None:
                from ...reporting.replay import record_times

                record_times(cloud)
        if self._listener is not None:
            self._listener.listen(cloud)
        elif self._has_report and not sys.modules.keys().isdisjoint(_FRAMEWORKS):
            from ...reporting.applications import Listener

            self._listener = Listener()
            self._listener.listen(cloud)

    def pause(self) -> None:
        """Record no requests until the next test."""
        self._cloud = None
        if self._listener is not None:
            self._listener.listen(None)

    def served(self, cloud: Cloud) -> list[ServedRequest]:
        """Return the requests served during the test that used a cloud."""
        listener = self._listener
        return list(listener.served) if listener is not None and listener.cloud is cloud else []

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


MINIMUM_WAIT_SECONDS = 0.04
"""Minimum average wait that counts as sleep. Shorter waits are waits for the CPU."""
_OF_THREAD = getattr(resource, "RUSAGE_THREAD", getattr(resource, "RUSAGE_SELF", 0))


def _figures() -> tuple[float, float, int]:
    """Return real seconds (even if tools change the process's time), CPU seconds, and how often
    this thread was given the CPU (0 if unknown).
    """
    turns = 0
    if resource is not None:
        usage = resource.getrusage(_OF_THREAD)
        turns = usage.ru_nvcsw + usage.ru_nivcsw
    return monotonic(), process_time(), turns


class SleepMeter:
    """Measures how long the code of a test sleeps."""

    def __init__(self) -> None:
        self._began: tuple[float, float, int] | None = None

    def start(self) -> None:
        self._began = _figures()

    def seconds(self) -> float:
        """Return the seconds slept since the start; 0 if unknown. Waits for the CPU on a busy
        machine are frequent and short, so only a long average wait counts as sleep.
        """
        if self._began is None:
            return 0.0
        real_s, busy_s, turns = (
            now - began for now, began in zip(_figures(), self._began, strict=True)
        )
        idle_s = real_s - busy_s
        return idle_s if turns > 0 and idle_s / turns >= MINIMUM_WAIT_SECONDS else 0.0


# -- before the first test, and before files are faked ---------------------------------------------


def begin_early(config: pytest.Config) -> Run:
    """Start fakes and set their variables before conftests are imported; return the run."""
    names = words_of(config, "fakecloud_early")
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(name) for name in names]
    unknown = [name for name in names if name not in fixtures]
    if unknown:
        raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', unknown[0], fixtures)}")
    check_settings(config)
    run = Run(config)
    # Close the fakes here: nothing else would if a conftest cannot be imported.
    config.add_cleanup(run.close)

    config.pluginmanager.register(sys.modules[__name__])
    try:
        run.start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error
    return run


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
    """Apply the settings of the session before the first test, whether or not it requests a fake."""


NOT_OF_A_TEST = (
    "__main__",
    "cli",
    "real_kafka",
    "real_redis",
    "standalone",
    "support",
    "tls",
    "verify",
)
"""Modules that ``import_fakes()`` leaves out: tests only need them with a library or a server."""


IMPORTED_LATER = ("cronsim", "jwt")
"""Libraries that functions of this package import when they are first called."""


def import_fakes() -> None:
    """Import every module that fakes may need, for tests that fake the file system: a module
    imported while files are faked would keep the faked objects and be forgotten afterwards, and
    some modules cannot be imported twice.
    """
    for module in walk_packages(__path__, f"{__package__.partition('.')[0]}."):
        if not any(word in NOT_OF_A_TEST for word in module.name.split(".")):
            import_module(module.name)
    for name in IMPORTED_LATER:
        import_module(name)
