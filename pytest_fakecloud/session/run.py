"""The state of one pytest run: the current test, its cloud, and the cloud that outlives tests.

Imported when a test first uses a fake, or to check a setting. The fakes are imported when needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from ..services import services_by_word
from .clouds import SessionCloud, new_cloud, publish_env
from .observation import Observation
from .options import SETTINGS, RunOptions, fixture_of, kinds_of, misuse, without_traceback
from .parametrize import may_be_overridden
from .sleeping import SleepMeter

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..transport.patches import Changes

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
    from ..core.errors import ContractError
    from .checks import check_settings

    check_settings(config)

    try:
        run_of(config).start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error


def end(config: pytest.Config) -> None:
    """Close the fakes that a run keeps open."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


@dataclass
class TestState:
    """The state of the current test.

    ``cloud`` is the test's cloud, if created. ``is_reported`` is True once the journal has been
    added to a report. ``strict`` are the kinds of violations that fail the test, if known.
    """

    __test__ = False

    item: pytest.Item | None = None
    cloud: AnyCloud | None = None
    is_reported: bool = False
    strict: tuple[str, ...] | None = None


class Run:
    """The state that the hooks and fixtures of one pytest run share.

    ``test`` is the state of the current test. A run may also have a cloud that outlives tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.options = RunOptions(config)
        self.test = TestState()
        self._session = SessionCloud(self.options)
        self.sleep = SleepMeter()
        self.observation = Observation(self.options)
        self._environment = pytest.MonkeyPatch()
        self._process_changes: Changes | None = None

    # -- clouds ----------------------------------------------------------------------------------

    def test_cloud(self) -> AnyCloud:
        """Return the current test's cloud. If it cannot be created, fail without a traceback."""
        return without_traceback(self._test_cloud)

    def test_handle(self, fixture: str) -> Any:
        """Return the fake of a fixture. If it cannot be created, fail with one line, no traceback."""
        return without_traceback(lambda: self._test_cloud().fixture_handle(fixture))

    def session_cloud(self, settings: Mapping[str, Any] | None = None) -> AnyCloud:
        """Return the cloud that outlives tests, created on first use."""
        return self._session.open(settings)

    def _test_cloud(self) -> AnyCloud:
        """Return the current test's cloud, which is created when the first fixture needs it.

        It is not the value of the fixture ``fakecloud``: another fixture takes 40 us per test.
        """
        test = self.test
        if test.cloud is not None and not test.cloud.closed:
            return test.cloud
        assert test.item is not None, "fixtures of fakes are for tests"
        settings, own = self._settings(test.item)
        test.strict = kinds_of(settings["strict"])
        if self.options.fakes_outlive_tests:
            cloud = self._adapted_session_cloud(test.item, settings, own)
        else:
            self._keep_process_changes(settings)
            cloud = new_cloud(settings, "driven")
            test.item.addfinalizer(cloud.close)
        test.cloud = cloud
        self.observation.observe(cloud, test.item)
        if settings["env"]:
            test.item.addfinalizer(publish_env(cloud, _fixture_value(test.item, "monkeypatch")))
        return cloud

    def _adapted_session_cloud(
        self, item: pytest.Item, settings: Mapping[str, Any], own: Mapping[str, Any]
    ) -> AnyCloud:
        """Return the cloud that outlives tests with a test's settings, or reject the settings."""
        given = self.options.given(item, own)
        cloud: Any = _fixture_value(item, "fakecloud_session")
        if self.options.url is not None:
            cloud._adapt({name: settings[name] for name in given})
        return cast("AnyCloud", cloud)

    def _settings(self, item: pytest.Item) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the settings of a test, and those that its settings fixture returned."""
        if not may_be_overridden(item):
            return self.options.settings_of(item), {}
        own = _fixture_value(item, SETTINGS)
        if not isinstance(own, Mapping):
            raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {own!r}")
        return self.options.settings_of(item, own), own

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.test.cloud is not None or self._session.cloud is not None

    def clouds(self) -> list[AnyCloud]:
        """Return the clouds of the test: its own, and the run's if it was used.

        The run's is included because an application may call fakes that no test requests.
        """
        clouds = [] if self.test.cloud is None else [self.test.cloud]
        session = self._unrequested_cloud()
        if session is not None and (session.journal.entries or session.problems):
            clouds.append(session)
        return clouds

    def _unrequested_cloud(self) -> AnyCloud | None:
        """Return the cloud that outlives tests, if the test has not requested it.

        A stand-alone server is left out, because other clients may be using it.
        """
        session = self._session.cloud
        return None if session is self.test.cloud or self.options.url is not None else session

    def strict_kinds(self) -> tuple[str, ...]:
        """Return the kinds of strict-mode violations that fail the current test.

        If the test has not requested a fake, its settings are read only for violations in the cloud
        that outlives tests, because they may be the value of a fixture.
        """
        test = self.test
        if test.strict is not None:
            return test.strict
        session = self._unrequested_cloud()
        if test.item is None or session is None or not session.problems:
            return ()
        test.strict = kinds_of(self._settings(test.item)[0]["strict"])
        return test.strict

    def start_early(self, names: list[str]) -> None:
        """Start fakes and set their variables for the whole run."""
        cloud = self.session_cloud()
        for name in names:
            for variable, value in cloud.fixture_handle(name).env.items():
                self._environment.setenv(variable, value)

    # -- changes to the process ------------------------------------------------------------------

    def _keep_process_changes(self, settings: Mapping[str, Any]) -> None:
        # Keep a cloud's process-wide patches, because reapplying them for each test is costly.
        if self._process_changes is None:
            from ..transport.patches import Changes

            self._process_changes = Changes(
                shares_tls_context=settings["share_tls_context"],
                in_process=settings["transport"] == "inprocess",
            )

    def _undo_process_changes(self) -> None:
        if self._process_changes is not None:
            self._process_changes.close()
            self._process_changes = None
        self.observation.close()

    # -- between tests ---------------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Return every fake to its baseline and remove all traces of earlier tests.

        For a test without fakes, the changes to the process are undone.
        """
        self.test = TestState(item)
        names = getattr(item, "fixturenames", ())
        if self._process_changes is not None and self.options.fixtures.isdisjoint(names):
            self._undo_process_changes()
        self._session.begin_test(item)

    def begin_call(self) -> None:
        """Mark calls made before the test's own code, and start measuring how long it sleeps."""
        self.sleep.start()
        cloud = self.test.cloud or self._session.cloud
        if cloud is not None:
            self.observation.observe(cloud, self.test.item)
        self._session.begin_call()

    def end_test(self) -> None:
        """Release the test's cloud; otherwise its data would be kept in memory until the run ends."""
        self.test = TestState()
        self.observation.pause()

    def close(self) -> None:
        """Close the fakes that outlive tests and restore the environment."""
        self.end_test()
        self._environment.undo()
        self._undo_process_changes()
        self._session.close()


def _fixture_value(item: pytest.Item, name: str) -> Any:
    found: Any = item
    return found._request.getfixturevalue(name)
