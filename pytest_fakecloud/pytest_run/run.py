"""The state of one pytest run: the current test, and the clouds that several tests share.

Imported when a test first uses a fake. ``docs/contributing/map.md`` shows what owns what, and when it
ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ..cloud.cloud import Cloud
from ..core.exits import call_all
from ..core.libraries import add_test
from .checks import check_own_settings, check_same_settings, check_session_settings
from .clouds import new_cloud, published_env
from .observation import Observation, SleepMeter
from .options import (
    PER_TEST_SETTINGS,
    SESSION_SETTINGS,
    SETTINGS,
    RunOptions,
    kinds_of,
    markers_of,
    without_traceback,
)
from .shared import BeforeFixture, SharedCloud
from .warning import warn

if TYPE_CHECKING:
    from ..reporting.applications import ServedRequest


@dataclass
class TestState:
    """The state of one test, from its set-up until its teardown has been reported."""

    __test__ = False

    item: pytest.Item | None = None
    """The test; None before the first test and after the last one."""
    cloud: Cloud | None = None
    """The cloud of the fixtures, once the test uses it."""
    strict: tuple[str, ...] | None = None
    """The kinds of violations that fail the test, once it uses that cloud."""
    observation: Observation | None = None
    sleep: SleepMeter | None = None
    """Measures the code of the test, once it has begun."""
    exits: ExitStack = field(default_factory=ExitStack)
    """What ends with the test."""
    has_ended: bool = False
    """Whether the test's own code has ended. pytest also reports each subtest, before."""
    has_failed_subtest: bool = False
    is_reported: bool = False
    """Whether the journal is in a report, which that of the teardown does not repeat."""
    recorded: list[Any] = field(default_factory=list)
    """The entries of the journal that are in the test's recording."""

    def served(self, cloud: Cloud) -> list[ServedRequest]:
        """Return the requests that the application served during the test, which used this cloud."""
        return [] if self.observation is None else self.observation.served(cloud)

    def slept_seconds(self) -> float:
        """Return how long the code of the test has slept; 0 if unknown."""
        return 0.0 if self.sleep is None else self.sleep.seconds()


class Run:
    """The state that the hooks and fixtures of one pytest run share: the current ``test``, and the
    clouds that several tests share, one for the session and one for the current class or module.

    For each test, the hooks call ``begin_test()``, ``end_setup()``, ``begin_call()``, ``end_call()`` and
    ``end_test()``. The fixtures call ``open_cloud()``, ``close_cloud()`` and ``open_session()``.
    """

    def __init__(self, config: pytest.Config, scope: str) -> None:
        self.options = RunOptions(config, scope)
        self.test = TestState()
        self.session_cloud: SharedCloud | None = None
        """The cloud of the session, from its first use until the run closes."""
        self._scope_cloud: SharedCloud | None = None
        """The cloud of the current class or module, from its first use until their end."""
        self._session_settings: Mapping[str, Any] | None = None
        """The settings of the session, once they are known."""
        self._own_settings: Mapping[str, Any] = {}
        """The settings that ``fakecloud_settings`` returned for the fixtures' fakes."""
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
        check_own_settings(self.options, item, own)
        if session_settings and scope != "session":
            self._warn_of_session_settings(item)
        self._own_settings = own
        owner = self.options.owner_of(item)
        if scope == "session":
            cloud = self.open_session(session_settings)
        elif owner is not item:
            layers = [own, *markers_of(owner)]
            self._scope_cloud = SharedCloud(self.options, item.nodeid, layers)
            cloud = self._scope_cloud.cloud
        else:
            cloud = new_cloud(self.options.config, self._settings(item))
        try:
            self._use(cloud, item)
        except BaseException:
            self.close_cloud(cloud)
            raise
        return cloud

    def close_cloud(self, cloud: Cloud) -> None:
        """Close the cloud of the fixtures at the end of their scope, unless it lasts for the run."""
        if _is_of(self.session_cloud, cloud):
            return
        if _is_of(self._scope_cloud, cloud):
            self._scope_cloud = None
        cloud.close()

    def _use_requested_cloud(self) -> None:
        """Let the current test use the fixtures' cloud if it has requested one that exists already.

        pytest keeps the value of a fixture of a wide scope and does not call it for a later test. So
        this is called three times: when a test begins, which may have requested the cloud by name, and
        after its fixtures and after its code, which may have requested it at run time.
        """
        item, scope = self.test.item, self.options.scope
        if item is None or scope == "function" or self.test.cloud is not None:
            return
        shared = self.session_cloud if scope == "session" else self._scope_cloud
        if shared is not None and _has_requested_cloud(item):
            self._use(shared.cloud, item)

    def _use(self, cloud: Cloud, item: pytest.Item) -> None:
        """Let the current test use a cloud, until it ends."""
        test, settings = self.test, self._settings(item)
        test.strict = kinds_of(settings["strict"])
        test.cloud = cloud
        self._observe(cloud)
        if settings["env"]:
            # pytest undoes a test's own monkeypatch before the end of the test. That is the reverse
            # order only if the cloud's variables are set before all fixtures of the test, or by it.
            request = getattr(item, "_request", None)
            if self.options.scope == "function" and request is not None:
                patch = request.getfixturevalue("monkeypatch")
            else:
                patch = test.exits.enter_context(pytest.MonkeyPatch.context())
            test.exits.enter_context(published_env(cloud, patch))

    def _observe(self, cloud: Cloud) -> None:
        """Record what the report of the current test needs to know of a cloud."""
        if self.test.observation is not None:
            self.test.observation.observe(cloud)

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
        """Return the settings of a test, with those of the session that apply to each test."""
        session = self._session_settings or {} if self.options.scope == "session" else {}
        base = {name: session[name] for name in PER_TEST_SETTINGS if name in session}
        return self.options.settings_of(item, base, self._own_settings)

    @without_traceback
    def open_session(self, settings: Any) -> Cloud:
        """Return the cloud that lasts for the run, opened on first use; fail a test with other settings
        than it was opened with.
        """
        check_session_settings(self.options.scope, settings, self._session_settings)
        if self.session_cloud is None or self._session_settings is None:
            self.session_cloud = self._new_session_cloud(settings)
            self._session_settings = settings
        return self.session_cloud.cloud

    def _new_session_cloud(self, settings: Mapping[str, Any]) -> SharedCloud:
        """Open the cloud of the session. ``EarlyRun`` overrides this."""
        assert self.test.item is not None, "fixtures of fakes are for tests"
        # Applications use the queues beside the tests, so no test could run them for all.
        return SharedCloud(self.options, self.test.item.nodeid, [settings], "background")

    @property
    def _shared(self) -> list[SharedCloud]:
        """The clouds that outlive the current test, that of the class or module first."""
        clouds = (self._scope_cloud, self.session_cloud)
        return [shared for shared in clouds if shared is not None]

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.test.cloud is not None or bool(self._shared)

    def clouds(self) -> list[Cloud]:
        """Return the cloud that the test uses and the other shared ones, if they were used: an
        application may call fakes that no test requests.
        """
        requested = self.test.cloud
        clouds = [] if requested is None else [requested]
        for shared in self._shared:
            cloud = shared.cloud
            if cloud is requested:
                continue
            if cloud._context.recorder.entries or cloud.violations():
                clouds.append(cloud)
        return clouds

    def hints(self, cloud: Cloud, item: pytest.Item) -> list[str]:
        """Return the hints about a cloud that several tests share."""
        return [
            hint
            for shared in self._shared
            if shared.cloud is cloud
            for hint in shared.lost.hints(item)
        ]

    def strict_kinds(self) -> tuple[str, ...]:
        """Return the kinds of strict-mode violations that fail the current test."""
        test = self.test
        if test.strict is not None:
            return test.strict
        # Read the settings of a test without fakes only if a cloud that outlives it has violations.
        if test.item is None or not any(cloud.violations() for cloud in self.clouds()):
            return ()
        return kinds_of(self._settings(test.item)["strict"])

    # -- the phases of a test --------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Return the shared clouds to what each test begins with, and remove all traces of earlier
        tests.
        """
        self.end_test()
        observation = Observation(self.options, item)
        self.test = TestState(item, observation=observation)
        self.test.exits.callback(observation.close)
        add_test(str(item.path))
        for shared in self._shared:
            shared.begin_test(item)
        if self.options.scope == "function":
            # In a wider scope, pytest gives later tests the fakes without asking for settings again.
            self._own_settings = {}
        self._use_requested_cloud()

    def end_setup(self) -> None:
        """Note what the test's fixtures requested at run time."""
        self._use_requested_cloud()

    def begin_fixture(self) -> dict[SharedCloud, BeforeFixture]:
        """Return the state of the shared clouds before a fixture of a wide scope."""
        return {shared: shared.begin_fixture() for shared in self._shared}

    def end_fixture(
        self, fixture: pytest.FixtureDef[Any], before: Mapping[SharedCloud, BeforeFixture]
    ) -> None:
        """Let what a fixture of a wide scope has started in the shared clouds stay. The fixture may
        have opened a cloud of which there is no state ``before``.
        """
        for shared in self._shared:
            shared.end_fixture(fixture, before.get(shared))

    def begin_call(self) -> None:
        """Mark calls made before the test's own code, and start measuring how long it sleeps."""
        self.test.sleep = SleepMeter()
        if self.test.item is not None:
            self._check_settings(self.test.item)
        if self.test.cloud is not None:
            self._observe(self.test.cloud)
        elif self.session_cloud is not None:
            self._observe(self.session_cloud.cloud)
        for shared in self._shared:
            shared.begin_call()

    def end_call(self) -> None:
        """Note that the test's own code has ended, and what it requested at run time."""
        self.test.has_ended = True
        self._use_requested_cloud()

    def end_test(self) -> None:
        """Release the test's cloud; otherwise its data would be kept in memory until the run ends."""
        self.test.exits.close()
        self.test = TestState()

    def close(self) -> None:
        """End the run: its current test, and the clouds that outlive tests."""
        self.end_test()
        call_all(shared.cloud.close for shared in reversed(self._shared))

    # -- settings of tests whose fakes outlive them ------------------------------------------------

    def _check_settings(self, item: pytest.Item) -> None:
        """Fail a test whose settings cannot apply to the clouds that outlive it. pytest returns the
        value of a fixture of a wide scope without looking at the settings again.
        """
        scope = self.options.scope
        if scope == "function" and self.session_cloud is None:
            return
        funcargs = getattr(item, "funcargs", {})
        is_session_used = scope == "session" or "fakecloud_session" in funcargs
        if is_session_used and SESSION_SETTINGS in funcargs and self.session_cloud is not None:
            self.open_session(funcargs[SESSION_SETTINGS])
        if scope != "function" and SETTINGS in funcargs:
            self._apply_own_settings(item, funcargs[SETTINGS])

    def _apply_own_settings(self, item: pytest.Item, own: Mapping[str, Any]) -> None:
        """Apply the value of ``fakecloud_settings`` of a test whose fakes outlive it."""
        check_own_settings(self.options, item, own)
        if own == self._own_settings:
            return
        if self.test.cloud is not None:
            check_same_settings(self.options.scope, own, self._own_settings)
        self._own_settings = own
        if self.test.cloud is not None:
            self.test.strict = kinds_of(self._settings(item)["strict"])


def _is_of(shared: SharedCloud | None, cloud: Cloud) -> bool:
    """Return whether a cloud is a shared one."""
    return shared is not None and shared.cloud is cloud


def _has_requested_cloud(item: pytest.Item) -> bool:
    """Return whether a test has requested the fixtures' cloud, or may do so: a doctest can request
    fixtures at run time only.
    """
    names = getattr(item, "fixturenames", ())
    requested_so_far = getattr(getattr(item, "_request", None), "_fixture_defs", ())
    return (
        "fakecloud" in names
        or "fakecloud" in requested_so_far
        or isinstance(item, pytest.DoctestItem)
    )
