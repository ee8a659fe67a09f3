"""The state of one pytest run: the current test, and the clouds of the fixtures.

Imported when a test first uses a fake or the marker, or for early fakes.
``docs/contributing/map.md`` shows what owns what, and when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from ..cloud.cloud import Cloud
from ..core.exits import Exits
from ..core.libraries import add_test
from ..process.surroundings import Variables
from .checks import check_own_settings, check_same_settings, check_session_settings
from .cloud_owner import BeforeFixture, CloudOwner
from .observation import Observation, SleepMeter
from .options import SESSION_SETTINGS, SETTINGS, RunOptions, without_traceback
from .variables import publish_env
from .warning import warn

if TYPE_CHECKING:
    from ..reporting.applications import ServedRequest
    from ..reporting.asserted import UnequalValues


@dataclass
class TestState:
    """The state of one test, from its set-up until its teardown has been reported."""

    __test__ = False

    item: pytest.Item | None = None
    """The test; None before the first test and after the last one."""
    settings: Mapping[str, Any] | None = None
    """The value of ``fakecloud_settings`` in a wide scope, once the test's code begins."""
    has_env: bool = False
    """Whether the variables of the fixtures' fakes have been set, if the test's settings say so."""
    observation: Observation | None = None
    compared: UnequalValues | None = None
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
        self._has_warned = False
        """Whether a test has warned of settings of the session without an effect."""

    # -- clouds ----------------------------------------------------------------------------------

    @without_traceback
    def open_cloud(self, settings: Any, session_settings: Any) -> Cloud:
        """Return the cloud of the fixtures, given the values of the fixtures with settings."""
        item, options = self._item(), self.options
        check_own_settings(options, item, settings)
        if session_settings and options.scope != "session":
            self._warn_of_session_settings(item)
        try:
            if options.scope == "session":
                owner = self.open_session(session_settings)
                owner.settings = settings
            else:
                node = options.node_of_scope(item)
                owner = CloudOwner(self._exits, options, item.nodeid, node, settings=settings)
                self._fixture_owner = owner
            self._observe()
            self._set_env(owner.cloud)
        except BaseException:
            self.close_cloud()
            raise
        return owner.cloud

    def close_cloud(self) -> None:
        """Close the cloud of the fixtures at the end of their scope, unless it lasts for the session."""
        if self._fixture_owner is not None:
            self._fixture_owner.close()

    def _item(self) -> pytest.Item:
        assert self.test.item is not None, "fixtures of fakes are for tests"
        return self.test.item

    @property
    def _owner(self) -> CloudOwner | None:
        """The owner of the cloud of the fixtures; None before its first use."""
        return self.session_owner if self.options.scope == "session" else self._fixture_owner

    @property
    def cloud(self) -> Cloud | None:
        """The cloud of the fixtures, if the current test has requested it so far.

        pytest keeps the value of a fixture of a wide scope, and calls nothing when a later test requests
        it. So this asks pytest for the names. No public one has what was requested at run time, except
        in a fixture of the test: an autouse fixture would be part of every test of every suite.
        """
        owner, item = self._owner, self.test.item
        names = getattr(getattr(item, "_request", None), "fixturenames", ())
        # A doctest can request fixtures at run time only, when it is too late for variables.
        is_requested = "fakecloud" in names or isinstance(item, pytest.DoctestItem)
        return owner.cloud if owner is not None and is_requested else None

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the current test."""
        item, owner = self._item(), self._owner
        return (
            self.options.merged(item) if owner is None else owner.merged(item, self.test.settings)
        )

    def _set_env(self, cloud: Cloud | None) -> None:
        """Set the variables of the fixtures' cloud, if the current test uses it and its settings say
        so, until the test ends.
        """
        test = self.test
        if cloud is not None and not test.has_env:
            test.has_env = True
            if self._settings()["env"]:
                publish_env(cloud, test.exits)

    def _observe(self) -> None:
        """Record what the report of the current test needs to know of the fixtures' cloud, or else of
        the session's, which the application can use.
        """
        owner = self._owner or self.session_owner
        if owner is not None and self.test.observation is not None:
            self.test.observation.observe(owner.cloud)

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

    @without_traceback
    def open_session(self, settings: Any) -> CloudOwner:
        """Return the owner of the session's cloud, opened on first use, given the value of the fixture
        with its settings. Fail a test with other settings than an earlier one.
        """
        item, owner = self._item(), self.session_owner
        if owner is not None and owner.is_closed:
            owner = None
        former = None if owner is None else owner.session_settings
        check_session_settings(self.options.scope, settings, former)
        if owner is None:
            owner = self.open_session_owner(item.nodeid, settings)
        elif former is None:  # Early fakes opened it before the settings were known.
            owner.session_settings = settings
        else:
            return owner
        # After the session's fixtures, which may use the cloud.
        item.session.addfinalizer(self.close_session)
        return owner

    def open_session_owner(self, seed: str, settings: Mapping[str, Any] | None) -> CloudOwner:
        """Open the cloud of the session; for early fakes without settings, which are not known yet."""
        # Applications use the queues beside the tests, so no test could run them for all.
        self.session_owner = CloudOwner(
            self._exits, self.options, seed, session_settings=settings, delivery="background"
        )
        return self.session_owner

    def close_session(self) -> None:
        """Close the cloud of the session. pytest calls this in the teardown of the last test."""
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
        return bool(self._owners)

    def clouds(self) -> list[Cloud]:
        """Return the cloud that the test uses and the other open ones, if they were used: an
        application may call fakes that no test requests.
        """
        requested = self.cloud
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
        return cast("tuple[str, ...]", self._settings()["strict"])

    # -- the phases of a test --------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Begin a test: return the open clouds to what each test begins with."""
        self.end_test()
        self.test = TestState(item)
        self.test.observation = Observation(self.options, item, self.test.exits)
        add_test(str(item.path))
        for owner in self._owners:
            owner.prepare(item)
        self._observe()
        self._set_env(self.cloud)

    def end_setup(self) -> None:
        """Set the variables also if only a fixture of the test requested the fakes, at run time."""
        self._set_env(self.cloud)

    def begin_fixture(self) -> dict[CloudOwner, BeforeFixture]:
        """Return the state of the open clouds before a fixture of a wide scope."""
        return {owner: owner.before_fixture() for owner in self._owners}

    def end_fixture(
        self, fixture: pytest.FixtureDef[Any], before: Mapping[CloudOwner, BeforeFixture]
    ) -> None:
        """Let what a fixture of a wide scope has started in the open clouds stay. The fixture may have
        opened a cloud of which there is no state ``before``.
        """
        for owner in self._owners:
            owner.keep(fixture, before.get(owner))

    def abandon_fixture(self, before: Mapping[CloudOwner, BeforeFixture]) -> None:
        """Return to the baselines before a fixture of a wide scope that has raised an exception."""
        for owner, state in before.items():
            owner.end_baselines(state)

    def begin_call(self) -> None:
        """Fail the test for settings that cannot apply, mark calls made before its own code, and start
        measuring how long it sleeps.
        """
        self.test.sleep = SleepMeter()
        self._check_settings(self._item())
        self._observe()
        for owner in self._owners:
            owner.mark_earlier_calls()

    def end_call(self) -> None:
        """Note that the test's own code has ended."""
        self.test.has_ended = True

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
        scope, session_owner = self.options.scope, self.session_owner
        funcargs = getattr(item, "funcargs", {})
        is_session_used = scope == "session" or "fakecloud_session" in funcargs
        if is_session_used and SESSION_SETTINGS in funcargs and session_owner is not None:
            check_session_settings(
                scope, funcargs[SESSION_SETTINGS], session_owner.session_settings
            )
        if scope != "function" and SETTINGS in funcargs:
            settings, owner = funcargs[SETTINGS], self._owner
            check_own_settings(self.options, item, settings)
            if owner is not None and owner.settings is not None and self.cloud is not None:
                check_same_settings(scope, settings, owner.settings)
            self.test.settings = settings
