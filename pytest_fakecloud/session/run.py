"""The state of one pytest run: the current test, its cloud, and the cloud that outlives tests.

Imported when a test first uses a fake, or to check a setting. The fakes are imported when needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ..services import SERVICES
from .clouds import SessionCloud, new_cloud, publish_env
from .observation import Observation
from .options import (
    SESSION_SETTINGS,
    SETTINGS,
    RunOptions,
    fixture_of,
    kinds_of,
    misuse,
    without_traceback,
)
from .parametrize import may_be_overridden, own_markers
from .sleeping import SleepMeter

if TYPE_CHECKING:
    from ..cloud import Cloud
    from ..transport.patches import Changes

_RUN = pytest.StashKey["Run"]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a configuration. Creating it starts nothing."""
    run = config.stash.get(_RUN, None)
    if run is None:
        run = config.stash[_RUN] = Run(config)
    return run


def end(config: pytest.Config) -> None:
    """Close the fakes that a run keeps open."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


@dataclass
class TestState:
    """The state of the current test.

    ``cloud`` is the test's cloud, if created, and ``used`` are the fixtures that returned its fakes.
    ``is_reported`` is True once the journal has been added to a report. ``strict`` are the kinds of
    violations that fail the test, if known.
    """

    __test__ = False

    item: pytest.Item | None = None
    cloud: Cloud | None = None
    used: set[str] = field(default_factory=set)
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
        self._knows_session_settings = self.options.fakes_outlive_tests
        """Whether the settings of the session have an effect, or are known to have none."""

    # -- clouds ----------------------------------------------------------------------------------

    def test_cloud(self) -> Cloud:
        """Return the current test's cloud. If it cannot be created, fail without a traceback."""
        return without_traceback(self._test_cloud)

    def test_handle(self, fixture: str) -> Any:
        """Return the fake of a fixture. If it cannot be created, fail with one line, no traceback."""
        self.test.used.add(fixture)
        return without_traceback(lambda: self._test_cloud()._fixture_fake(fixture))

    def session_cloud(self, settings: Any) -> Cloud:
        """Return the cloud that outlives tests, with the settings of the session."""
        return self._session.open(settings)

    def _test_cloud(self) -> Cloud:
        """Return the current test's cloud, which is created when the first fixture needs it.

        It is not the value of the fixture ``fakecloud``: another fixture takes 40 us per test.
        """
        test = self.test
        if test.cloud is not None and not test.cloud.closed:
            return test.cloud
        assert test.item is not None, "fixtures of fakes are for tests"
        cloud: Cloud
        if self.options.fakes_outlive_tests:
            cloud, settings = self._adapted_session_cloud(test.item)
        else:
            settings = self._settings(test.item)[0]
            self._warn_of_session_settings(test.item)
            self._keep_process_changes(settings)
            cloud = new_cloud(settings, "driven")
            test.item.addfinalizer(cloud.close)
        test.strict = kinds_of(settings["strict"])
        test.cloud = cloud
        self.observation.observe(cloud, test.item)
        if settings["env"]:
            test.item.addfinalizer(publish_env(cloud, _fixture_value(test.item, "monkeypatch")))
        return cloud

    def _adapted_session_cloud(self, item: pytest.Item) -> tuple[Cloud, dict[str, Any]]:
        """Return the cloud that outlives tests, adapted to a test, and the test's settings.

        Settings that cannot apply to it fail the test.
        """
        cloud: Any = _fixture_value(item, "fakecloud_session")
        settings, own = self._settings(item)
        self.options.given(item, own)
        return cloud, settings

    def _warn_of_session_settings(self, item: pytest.Item) -> None:
        """Warn once of settings of the session in a run whose tests all have their own fakes."""
        if self._knows_session_settings or not may_be_overridden(item, SESSION_SETTINGS):
            return
        self._knows_session_settings = True
        if any(
            "fakecloud_session" in getattr(one, "fixturenames", ()) for one in item.session.items
        ):
            return
        if _fixture_value(item, SESSION_SETTINGS):
            from .warning import warn

            warn(
                item,
                f"the fixture {SESSION_SETTINGS} has no effect, because each test has its own fakes and "
                "no test of this run requests fakecloud_session: override fakecloud_settings, or set "
                "fakecloud_scope = session",
            )

    def _settings(self, item: pytest.Item) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the settings of a test, and those that its settings fixture returned."""
        own = _fixture_value(item, SETTINGS) if may_be_overridden(item) else {}
        if not isinstance(own, Mapping):
            raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {own!r}")
        base = self._session.settings_of_tests if self.options.fakes_outlive_tests else {}
        return self.options.settings_of(item, base, own), own

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.test.cloud is not None or self._session.cloud is not None

    def clouds(self) -> list[Cloud]:
        """Return the clouds of the test: its own, and the run's if it was used.

        The run's is included because an application may call fakes that no test requests.
        """
        clouds = [] if self.test.cloud is None else [self.test.cloud]
        session = self._unrequested_cloud()
        if session is not None and (session.journal.entries or session.problems()):
            clouds.append(session)
        return clouds

    def _unrequested_cloud(self) -> Cloud | None:
        """Return the cloud that outlives tests, if the test has not requested it."""
        session = self._session.cloud
        return None if session is self.test.cloud else session

    def strict_kinds(self) -> tuple[str, ...]:
        """Return the kinds of strict-mode violations that fail the current test.

        If the test has not requested a fake, its settings are read only for violations in the cloud
        that outlives tests, because they may be the value of a fixture.
        """
        test = self.test
        if test.strict is not None:
            return test.strict
        session = self._unrequested_cloud()
        if test.item is None or session is None or not session.problems():
            return ()
        test.strict = kinds_of(self._settings(test.item)[0]["strict"])
        return test.strict

    def start_early(self, names: list[str]) -> None:
        """Start fakes and set their variables for the whole run."""
        for variable, value in self._session.start_early(names).items():
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
        if self._session.cloud is not None and self.test.item is not None:
            self._check_settings(self.test.item)
        cloud = self.test.cloud or self._session.cloud
        if cloud is not None:
            self.observation.observe(cloud, self.test.item)
        self._session.begin_call()

    def _check_settings(self, item: pytest.Item) -> None:
        """Fail a test whose settings cannot apply to the cloud that outlives tests.

        Reads the settings of a test that requests no fake, which its application may use.
        """
        outlive = self.options.fakes_outlive_tests
        if not hasattr(item, "_request"):  # not a test of Python code
            return
        if not outlive and "fakecloud_session" not in getattr(item, "fixturenames", ()):
            return
        if may_be_overridden(item, SESSION_SETTINGS):
            self._session.open(_fixture_value(item, SESSION_SETTINGS))
        if outlive and self.test.cloud is None:
            self.options.given(item, self._settings(item)[1])

    def check_marker(self, item: pytest.Item) -> None:
        """Fail a passing test whose own marker had no effect.

        The marker of a class or a module may be meant for its other tests.
        """
        test = self.test
        for marker, is_of_all in own_markers(item):
            names = {fixture_of(name) for name in marker.kwargs}
            if test.cloud is None:
                # Strict mode also applies to early fakes that only the application uses.
                names -= {"strict"} if self._session.cloud is not None else set()
                if names:
                    raise misuse(
                        f"{', '.join(sorted(names))} of the marker has no effect, because the test uses "
                        "no fake: request the fixture of a fake (kv_server, ...), or fakecloud for its "
                        "clock"
                    )
            elif not is_of_all:
                unused = names.intersection(SERVICES).difference(
                    test.used, test.cloud._fixture_handles
                )
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
