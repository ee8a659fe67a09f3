"""The state of one pytest run: the current test, its cloud, and the cloud that outlives tests.

Imports only pytest. It is imported when a test first uses a fake, or to check a setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from ..services import services_by_word
from .options import (
    BECAUSE_OF_SERVER,
    BECAUSE_OF_SESSION,
    BECAUSE_OF_WORKERS,
    PER_TEST_SETTINGS,
    SERVERS_OWN_SETTINGS,
    SETTINGS,
    RunOptions,
    check_settings,
    fixture_of,
    given_settings,
    kinds_of,
    misuse,
    reject,
    without_traceback,
)
from .parametrize import is_overridden
from .sleeping import SleepMeter

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..cloud import Cloud
    from ..reporting.applications import Listener, Served
    from ..standalone.remote import RemoteCloud
    from ..transport.patches import Changes

T = TypeVar("T")
_FRAMEWORKS = ("flask", "django.core.signals", "starlette.testclient", "httpx")
"""Modules of frameworks whose requests are observed (see ``reporting.applications``)."""
_RUN = pytest.StashKey["Run"]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a configuration. Creating it starts nothing."""
    run = config.stash.get(_RUN, None)
    if run is None:
        run = config.stash[_RUN] = Run(config)
    return run


def begin_early(config: pytest.Config, names: list[str]) -> None:
    """Start fakes and set their variables before conftests are imported."""
    known = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(name) for name in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        from ..core.wording import unknown_name

        raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', unknown[0], known)}")
    # Close the fakes here: nothing else would if a conftest cannot be imported.
    config.add_cleanup(partial(end, config))
    check_settings(config)
    from ..core.errors import ContractError

    try:
        run_of(config).start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error


def end(config: pytest.Config) -> None:
    """Close the fakes that a run keeps open."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


class Run(RunOptions):
    """The state that the hooks and fixtures of one pytest run share.

    ``item`` is the current test and ``cloud`` its cloud, if created. ``reported`` is True once the
    journal has been added to a report. ``strict`` are the kinds of strict-mode violations that fail
    the test. Besides the clouds of tests, a run may have one that lasts until its end and returns
    to its baseline before each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self.item: pytest.Item | None = None
        self.cloud: AnyCloud | None = None
        self.reported = False
        self._sleep = SleepMeter()
        self.strict: tuple[str, ...] = ()
        self.early: tuple[str, ...] = ()
        self._long: AnyCloud | None = None
        self._environment = pytest.MonkeyPatch()
        self._known: list[Any] | None = None
        self._seed: Any = "session"
        self._seed_is_given = False
        self._kept: Changes | None = None
        self._listener: Listener | None = None

    # -- the test's cloud ------------------------------------------------------------------------

    def test_cloud(self) -> AnyCloud:
        """Return the current test's cloud. If it cannot be created, fail with one line, no
        traceback.
        """
        return without_traceback(self._test_cloud)

    def test_handle(self, fixture: str) -> Any:
        """Return the fake of a fixture. If it cannot be created, fail with one line, no traceback."""
        return without_traceback(lambda: self._test_cloud().fixture_handle(fixture))

    def _test_cloud(self) -> AnyCloud:
        """Return the current test's cloud, which is created when the first fixture needs it.

        It is not the value of the fixture ``fakecloud``, because each additional fixture takes 40
        us per test.
        """
        found, item = self.cloud, self.item
        if found is not None and not found.closed:
            return found
        assert item is not None, "fixtures of fakes are for tests"
        settings, own = self._settings(item)
        self.strict = kinds_of(settings)
        if self._outlives_tests:
            given = given_settings(item, own)
            if self.url is None:
                reject(given - {*PER_TEST_SETTINGS}, BECAUSE_OF_SESSION)
            cloud: AnyCloud = _fixture_value(item, "fakecloud_session")
            if self.url is not None:
                reject(given & {*SERVERS_OWN_SETTINGS}, BECAUSE_OF_SERVER)
                cast("RemoteCloud", cloud)._adapt({name: settings[name] for name in given})
        else:
            self._keep_changes(settings)
            cloud = _new_cloud(settings, "driven")
            item.addfinalizer(cloud.close)
        self.cloud = cloud
        self._listen(cloud)
        if settings["env"]:
            item.addfinalizer(publish_env(cloud, _fixture_value(item, "monkeypatch")))
        return cloud

    def _settings(self, item: pytest.Item) -> tuple[dict[str, Any], Mapping[str, Any]]:
        if not is_overridden(item):
            return self.settings_of(item), {}
        own = _fixture_value(item, SETTINGS)
        if not isinstance(own, Mapping):
            raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {own!r}")
        return self.settings_of(item, own), own

    @cached_property
    def _outlives_tests(self) -> bool:
        """Whether the fakes of fixtures belong to the cloud that lasts for the whole run."""
        return (
            bool(self.early)
            or self.url is not None
            or self.config.getini("fakecloud_scope") == "session"
        )

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.cloud is not None or self._long is not None

    def clouds(self) -> list[AnyCloud]:
        """Return the clouds of the test: its own, and the run's if it was used.

        The run's is included because an application that reads its settings at import calls fakes
        that its tests never request.
        """
        found = [] if self.cloud is None else [self.cloud]
        long = self._long
        # Leave out a stand-alone server, because other clients may be using it.
        if long is not None and long is not self.cloud and self.url is None:
            if self.cloud is None and self.item is not None and long.problems:
                self.strict = kinds_of(self._settings(self.item)[0])
            if long.journal.entries or long.problems:
                found.append(long)
        return found

    def _keep_changes(self, settings: Mapping[str, Any]) -> None:
        # Keep a cloud's process-wide patches between tests: undoing and reapplying them for each
        # test would be a large part of a fake's cost.
        if self._kept is None:
            from ..transport.patches import changes

            self._kept = changes(
                shares_tls_context=settings["share_tls_context"],
                in_process=settings["transport"] == "inprocess",
            )

    def _take_changes_back(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # -- the cloud that outlives tests -----------------------------------------------------------

    def long_cloud(self, settings: Mapping[str, Any] | None = None) -> AnyCloud:
        """Return the cloud that lasts for the whole run, created on first use."""
        if self._long is None and self.url is not None:
            from ..cloud import Cloud

            if self.is_shared(self.url):
                raise misuse(BECAUSE_OF_WORKERS)
            self._long = Cloud.connect(self.url)
        elif self._long is None:
            layers = [settings] if settings else []
            self._seed_is_given = any("seed" in layer for layer in layers)
            merged = self.merged(self._seed, layers)
            self._seed = merged["seed"]
            self._long = _new_cloud(merged, "background")
        elif settings:
            given = {fixture_of(name): value for name, value in settings.items()}
            self._long._fixture_settings = {**self._long._fixture_settings, **given}
        return self._long

    def start_early(self, names: list[str]) -> None:
        """Start fakes and set their variables for the whole run."""
        self.early = tuple(names)
        cloud = self.long_cloud()
        for name in names:
            handle = cloud.fixture_handle(name)
            for variable, value in handle.env.items():
                self._environment.setenv(variable, value)

    # -- between tests ---------------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Return every fake to its baseline and remove all traces of earlier tests.

        Random values start over from the test's own seed. For a test without fakes, the changes to
        the process are undone.
        """
        self.item = item
        self.cloud = None
        self.reported = False
        if self._kept is not None and self.fixtures.isdisjoint(getattr(item, "fixturenames", ())):
            self._take_changes_back()
        if not self._seed_is_given:
            self._seed = self.defaults["seed"] or item.nodeid
        if self._long is not None:
            if self._known is not None:
                self._long._keep_only(self._known)
            self._known = None
            # Keep the clock mode that the server was started with, unless the suite sets one.
            self._long.begin(clock=self.defaults["clock"] if self.url is not None else None)
            self._long.reseed(self._seed)

    def _listen(self, cloud: AnyCloud | None) -> None:
        """Record the requests that the application under test serves, if its framework announces
        them.
        """
        if cloud is not None and self.url is None:
            from ..core.journal import recorder_of

            recorder = recorder_of(cloud.journal)
            recorder.shared.find_site = self._call_site
            if self.timelines is not None:
                from ..reporting.replay import record_times

                record_times(cloud)
        if (
            cloud is None
            or sys.modules.keys().isdisjoint(_FRAMEWORKS)
            or self.url is not None
            or (self.journal_when == "never" and self.timelines is None)
        ):
            return
        if self._listener is None:
            from ..reporting.applications import Listener

            self._listener = Listener()
        self._listener.listen(cloud)

    @property
    def _call_site(self) -> Callable[[], Any] | None:
        """A function that returns the source line of a call, for tests that record call sites; else
        None.
        """
        wanted = self.config.getini("fakecloud_call_sites")
        failed = self.item is not None and self.item.nodeid in self.last_failed
        if wanted != "true" and not (wanted == "auto" and (failed or self.timelines is not None)):
            return None
        from ..transport.call_sites import call_site

        return call_site

    def served(self, cloud: AnyCloud) -> list[Served]:
        """Return the requests that the application under test served during the test that used
        ``cloud``.
        """
        listener = self._listener
        return list(listener.served) if listener is not None and listener.cloud is cloud else []

    def begin_call(self) -> None:
        """Mark calls recorded after the reset but before the test's own code, and start measuring
        how long that code sleeps.
        """
        self._sleep.start()
        self._listen(self.cloud or self._long)
        if self._long is not None:
            # Remember the fakes that already exist: those that the test's own code starts are
            # closed after the test.
            self._known = list(self._long.handles)
            for call in self._long.journal.calls():
                call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def idle_s(self) -> float:
        """Return how many seconds the test's own code has slept so far; 0 if unknown."""
        return self._sleep.seconds()

    def end_test(self) -> None:
        """Release the test's cloud; otherwise its data would be kept in memory until the run ends."""
        self.item = self.cloud = None
        if self._listener is not None:
            self._listener.listen(None)

    def close(self) -> None:
        """Close the fakes that outlive tests and restore the environment."""
        self.end_test()
        self._environment.undo()
        self._take_changes_back()
        if self._long is not None:
            self._long.close()


def publish_env(cloud: AnyCloud, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Set the variables of a cloud's fakes, and of later fakes until the returned function is
    called.

    That function must be called at the end of the test, because the cloud may outlive it and
    nothing else would undo variables set later.
    """
    seen: set[str] = set()

    def publish(handle: Any) -> None:
        variables = dict(handle.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)

    for handle in cloud.handles:
        publish(handle)
    return cloud._on_start(publish)


def _new_cloud(settings: Mapping[str, Any], delivery: Any) -> Cloud:
    from ..cloud import Cloud

    cloud = Cloud(
        settings["seed"],
        settings["now"],
        settings["clock"],
        settings["process_time"],
        delivery=delivery,
        transport=settings["transport"],
        tls=settings["tls"],
        share_tls_context=settings["share_tls_context"],
    )
    cloud._fixture_settings = settings
    return cloud


def _fixture_value(item: pytest.Item, name: str) -> Any:
    """Return the value of a fixture, as ``request.getfixturevalue()`` does."""
    found: Any = item
    return found._request.getfixturevalue(name)
