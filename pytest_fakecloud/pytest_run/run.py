"""The state of one pytest run: the current test, and the clouds of the fixtures.

Imported when a test first uses a fake or the marker, or for early fakes.
``docs/contributing/map.md`` shows what owns what, and when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ..cloud.cloud import Cloud
from ..core.exits import Exits
from ..core.libraries import add_test
from ..process.surroundings import Variables
from .checks import check_own_settings, check_same_settings, check_session_settings
from .cloud_owner import BeforeFixture, CloudOwner
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
from .variables import publish_env
from .warning import warn

if TYPE_CHECKING:
    from ..reporting.applications import ServedRequest
    from ..reporting.asserted import Comparison


@dataclass
class TestState:
    """The state of one test, from its set-up until its teardown has been reported."""

    __test__ = False

    item: pytest.Item | None = None
    """The test; None before the first test and after the last one."""
    cloud: Cloud | None = None
    """The cloud of the fixtures, once the test uses it. Only ``Run._use_cloud()`` sets it."""
    strict: tuple[str, ...] | None = None
    """The kinds of violations that fail the test, once it uses that cloud."""
    observation: Observation | None = None
    compared: Comparison | None = None
    """The last two values that an assertion of the test found unequal."""
    sleep: SleepMeter | None = None
    """Measures the code of the test, once it has begun."""
    exits: Exits = field(default_factory=Exits)
    """What ends with the test: what is recorded for its report, and the variables of its fakes."""
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
    owners of the clouds, one for the session and one for the current scope of the fixture ``fakecloud``.

    For each test, the hooks call ``begin_test()``, ``end_setup()``, ``begin_call()``, ``end_call()`` and
    ``end_test()``. The fixtures call ``open_cloud()``, ``close_cloud()`` and ``open_session()``.
    """

    def __init__(self, config: pytest.Config, scope: str) -> None:
        self.options = RunOptions(config, scope)
        self.test = TestState()
        self.early_variables = Variables()
        """The variables of early fakes, which are set until the run ends."""
        self._exits = Exits(self.end_test, self.early_variables.restore)
        """What ends with the run: the clouds that are still open, the latest first, and then these."""
        self.session_owner: CloudOwner | None = None
        """The owner of the session's cloud, from its first use, or of the early fakes, until the last
        test of the session has been reported.
        """
        self._fixture_owner: CloudOwner | None = None
        """The owner of the cloud of the current test, class or module, from its first use until their
        last test has been reported.
        """
        self._session_settings: Mapping[str, Any] | None = None
        """The settings of the session, from the first test that uses its cloud on."""
        self._fakecloud_settings: Mapping[str, Any] = {}
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
        self._fakecloud_settings = own
        try:
            if scope == "session":
                cloud = self.open_session(session_settings)
            else:
                layers = [own, *markers_of(self.options.node_of_scope(item))]
                self._fixture_owner = CloudOwner(self._exits, self.options, item.nodeid, layers)
                cloud = self._fixture_owner.cloud
            self._use_cloud(is_requested=True)
        except BaseException:
            self.close_cloud()
            raise
        return cloud

    def close_cloud(self) -> None:
        """Close the cloud of the fixtures at the end of their scope, unless it lasts for the session."""
        if self._fixture_owner is not None:
            self._fixture_owner.close()

    def _use_cloud(self, *, is_requested: bool = False) -> None:
        """Let the current test use the fixtures' cloud from now on, if it is open and the test has
        requested it.

        pytest keeps the value of a fixture of a wide scope and does not call it for a later test. So
        this is called when the cloud opens (``is_requested``), and for a later test when it begins,
        which may have requested the cloud by name, and after its fixtures and after its code, which
        may have requested it at run time.
        """
        test, item = self.test, self.test.item
        owner = self.session_owner if self.options.scope == "session" else self._fixture_owner
        if item is None or owner is None or test.cloud is not None:
            return
        if not is_requested and not _has_requested_cloud(item):
            return
        settings = self._settings(item)
        test.strict = kinds_of(settings["strict"])
        test.cloud = owner.cloud
        self._observe(owner.cloud)
        if settings["env"]:
            publish_env(owner.cloud, test.exits)

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
        return self.options.settings_of(item, base, self._fakecloud_settings)

    @without_traceback
    def open_session(self, settings: Any) -> Cloud:
        """Return the cloud that lasts for the session, opened on first use; fail a test with other
        settings than it was opened with.
        """
        check_session_settings(self.options.scope, settings, self._session_settings)
        item, owner = self.test.item, self.session_owner
        assert item is not None, "fixtures of fakes are for tests"
        # Early fakes are open before the settings are known.
        if owner is None or owner.is_closed:
            owner = self.open_session_owner(item.nodeid, settings)
        if self._session_settings is None:
            self._session_settings = settings
            # After the session's fixtures, which may use the cloud.
            item.session.addfinalizer(self.close_session)
        return owner.cloud

    def open_session_owner(self, seed: str, settings: Mapping[str, Any]) -> CloudOwner:
        """Open the cloud of the session."""
        # Applications use the queues beside the tests, so no test could run them for all.
        self.session_owner = CloudOwner(self._exits, self.options, seed, [settings], "background")
        return self.session_owner

    def close_session(self) -> None:
        """Close the cloud of the session. pytest calls this in the teardown of the last test."""
        self._session_settings = None
        if self.session_owner is not None:
            self.session_owner.close()

    @property
    def _owners(self) -> list[CloudOwner]:
        """The owners of the clouds, that of the narrower scope first."""
        owners = (self._fixture_owner, self.session_owner)
        return [owner for owner in owners if owner is not None]

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes to show in a report."""
        return self.test.cloud is not None or bool(self._owners)

    def clouds(self) -> list[Cloud]:
        """Return the cloud that the test uses and the other open ones, if they were used: an
        application may call fakes that no test requests.
        """
        requested = self.test.cloud
        clouds = [] if requested is None else [requested]
        for owner in self._owners:
            cloud = owner.cloud
            if cloud is requested:
                continue
            if cloud._context.recorder.entries or cloud.violations():
                clouds.append(cloud)
        return clouds

    def hints(self, cloud: Cloud, item: pytest.Item) -> list[str]:
        """Return the hints about a cloud that several tests share."""
        return [
            hint
            for owner in self._owners
            if owner.cloud is cloud
            for hint in owner.lost.hints(item)
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
        """Begin a test: return the open clouds to what each test begins with."""
        self.end_test()
        self.test = TestState(item)
        self.test.observation = Observation(self.options, item, self.test.exits)
        add_test(str(item.path))
        for owner in self._owners:
            owner.begin_test(item)
        if self.options.scope == "function":
            # In a wider scope, pytest gives later tests the fakes without asking for settings again.
            self._fakecloud_settings = {}
        self._use_cloud()

    def end_setup(self) -> None:
        """Note what the test's fixtures requested at run time."""
        self._use_cloud()

    def begin_fixture(self) -> dict[CloudOwner, BeforeFixture]:
        """Return the state of the open clouds before a fixture of a wide scope."""
        return {owner: owner.begin_fixture() for owner in self._owners}

    def end_fixture(
        self, fixture: pytest.FixtureDef[Any], before: Mapping[CloudOwner, BeforeFixture]
    ) -> None:
        """Let what a fixture of a wide scope has started in the open clouds stay. The fixture may have
        opened a cloud of which there is no state ``before``.
        """
        for owner in self._owners:
            owner.end_fixture(fixture, before.get(owner))

    def abandon_fixture(self, before: Mapping[CloudOwner, BeforeFixture]) -> None:
        """Return to the baselines before a fixture of a wide scope that has raised an exception."""
        for owner, state in before.items():
            owner.abandon_fixture(state)

    def begin_call(self) -> None:
        """Fail the test for settings that cannot apply, mark calls made before its own code, and start
        measuring how long it sleeps.
        """
        self.test.sleep = SleepMeter()
        if self.test.item is not None:
            self._check_settings(self.test.item)
        if self.test.cloud is not None:
            self._observe(self.test.cloud)
        elif self.session_owner is not None:
            self._observe(self.session_owner.cloud)
        for owner in self._owners:
            owner.begin_call()

    def end_call(self) -> None:
        """Note that the test's own code has ended, and what it requested at run time."""
        self.test.has_ended = True
        self._use_cloud()

    def end_test(self) -> None:
        """End what ends with the test, and forget it and the clouds that have ended with it, which the
        report of its teardown has read.
        """
        self.test.exits.close()
        self.test = TestState()
        if self._fixture_owner is not None and self._fixture_owner.is_closed:
            self._fixture_owner = None
        if self.session_owner is not None and self.session_owner.is_closed:
            self.session_owner = None

    def close(self) -> None:
        """End the run: what is open, the test, and the variables of early fakes. Can be repeated."""
        self._exits.close()

    # -- settings of tests whose fakes outlive them ------------------------------------------------

    def _check_settings(self, item: pytest.Item) -> None:
        """Fail a test whose settings cannot apply to the clouds that outlive it. pytest returns the
        value of a fixture of a wide scope without looking at the settings again.
        """
        scope = self.options.scope
        if scope == "function" and self.session_owner is None:
            return
        funcargs = getattr(item, "funcargs", {})
        is_session_used = scope == "session" or "fakecloud_session" in funcargs
        if is_session_used and SESSION_SETTINGS in funcargs and self.session_owner is not None:
            check_session_settings(scope, funcargs[SESSION_SETTINGS], self._session_settings)
        if scope != "function" and SETTINGS in funcargs:
            self._apply_own_settings(item, funcargs[SETTINGS])

    def _apply_own_settings(self, item: pytest.Item, own: Mapping[str, Any]) -> None:
        """Apply the value of ``fakecloud_settings`` of a test whose fakes outlive it."""
        check_own_settings(self.options, item, own)
        if own == self._fakecloud_settings:
            return
        if self.test.cloud is not None:
            check_same_settings(self.options.scope, own, self._fakecloud_settings)
        self._fakecloud_settings = own
        if self.test.cloud is not None:
            self.test.strict = kinds_of(self._settings(item)["strict"])


def _has_requested_cloud(item: pytest.Item) -> bool:
    """Return whether a test has requested the fixtures' cloud, or may do so: a doctest can request
    fixtures at run time only.
    """
    names_so_far = getattr(getattr(item, "_request", None), "fixturenames", ())
    return "fakecloud" in names_so_far or isinstance(item, pytest.DoctestItem)
