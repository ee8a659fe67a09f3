"""The state of one pytest run: the current test, and the clouds of the fixtures.

Every pytest run has this state, so this module imports only pytest and ``core.exits``. Its methods
import what they need when a test first uses a fake, or for early fakes. ``docs/contributing/map.md``
shows what owns what, and when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pytest

from ..core.exits import Exits

if TYPE_CHECKING:
    from ..cloud.cloud import Cloud
    from ..reporting.applications import ServedRequest
    from ..reporting.asserted import UnequalValues
    from .cloud_owner import CloudOwner
    from .observation import Observation
    from .options import FixtureValues, RunOptions


@dataclass
class TestState:
    """The state of one test, from its set-up until its teardown has been reported."""

    __test__ = False

    item: pytest.Item | None = None
    """The test; None before the first test and after the last one."""
    requested_cloud: Cloud | None = None
    """The cloud of the fixture ``fakecloud``, if the test has requested it so far."""
    values: FixtureValues = field(default_factory=dict)
    """The value of ``fakecloud_settings`` for the test, if its fakes outlive it. It is known when the
    code of the test begins.
    """
    has_variables: bool = False
    """Whether the variables of the fixtures' fakes have been set."""
    observation: Observation | None = None
    """What is recorded for the report, once a cloud is open."""
    compared: UnequalValues | None = None
    """The last two values that an assertion of the test found unequal."""
    exits: Exits = field(default_factory=Exits)
    """What ends with the test: what is recorded for its report, and the variables of its fakes."""
    has_run: bool = False
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
        return 0.0 if self.observation is None else self.observation.sleep.seconds()


class Run:
    """The state that the hooks and fixtures of one pytest run share: the current ``test``, and the
    owners of the clouds, one for the fixture ``fakecloud`` and one for the session.

    The hooks call for each test ``begin_test()``, ``end_setup()``, ``begin_call()``, ``end_call()``
    and ``end_test()``, and around each fixture of a wide scope ``wide_fixture()``. The plugin's fixtures
    call ``open_cloud()``, ``close_cloud()`` and ``open_session_cloud()``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.test = TestState()
        self.exits = Exits()
        """What ends with the run: the clouds that are still open, then the test."""
        self.exits.callback(self.end_test)
        self.fixture_owner: CloudOwner | None = None
        """The owner of the cloud of the fixture ``fakecloud``, from its first use in a scope until the
        last test of the scope has been reported. If the scope is the session, that of the session.
        """
        self.session_owner: CloudOwner | None = None
        """The owner of the session's cloud, from its first use, or of the early fakes, until the last
        test of the session has been reported.
        """
        self._has_warned = False
        """Whether a test has warned of settings of the session without an effect."""

    # -- settings --------------------------------------------------------------------------------

    @cached_property
    def is_early(self) -> bool:
        """Whether fakes start before the first import."""
        try:
            return bool(self.config.getini("fakecloud_early"))
        except (TypeError, ValueError, pytest.UsageError):
            # Imported here, because few runs have such a value.
            from .options import ini_value

            return bool(ini_value(self.config, "fakecloud_early"))

    @property
    def scope(self) -> str:
        """How long the fakes of fixtures last: function, class, module or session."""
        return "session" if self.is_early else self.config.getini("fakecloud_scope") or "function"

    @cached_property
    def options(self) -> RunOptions:
        from .options import RunOptions

        return RunOptions(self.config, self.scope)

    # -- clouds ----------------------------------------------------------------------------------

    def open_cloud(self, value: Any, session_value: Any) -> Cloud:
        """Return the cloud of the fixtures, given the values of the fixtures with settings."""
        from .checks import check_values, warn_of_session_settings
        from .cloud_owner import CloudOwner
        from .options import SETTINGS, without_traceback

        item, options, values = self._item(), self.options, {SETTINGS: value}
        check_values(options.scope, values, {})
        if options.scope == "session":
            owner = self.open_session_cloud(session_value)
            owner.values = {**owner.values, **values}
        else:
            if session_value and not self._has_warned:
                self._has_warned = True
                warn_of_session_settings(item)
            node = options.node_of_scope(item)
            with without_traceback():
                owner = CloudOwner(self.exits, options, "driven", node, values, item.nodeid)
        self.fixture_owner = owner
        # pytest does not name the fixture as requested yet.
        self.test.requested_cloud = owner.cloud
        self._observe()
        self._set_variables()
        return owner.cloud

    def close_cloud(self) -> None:
        """Close the cloud of the fixtures at the end of their scope, unless it lasts for the session."""
        owner = self.fixture_owner
        if owner is not None and owner is not self.session_owner:
            owner.close()

    def open_session_cloud(self, value: Any) -> CloudOwner:
        """Return the owner of the session's cloud, given the value of the fixture with its settings. The
        first use opens the cloud, or starts the early fakes again if there are settings.
        """
        from .checks import check_values
        from .options import SESSION_SETTINGS, without_traceback

        item, owner, values = self._item(), self.session_owner, {SESSION_SETTINGS: value}
        check_values(self.options.scope, values, {} if owner is None else owner.values)
        if owner is not None and SESSION_SETTINGS in owner.values:
            return owner
        with without_traceback():
            if owner is None:
                owner = self.new_session_owner(values, item.nodeid)
            elif value:
                from .early import with_settings

                owner = with_settings(self, owner, values, item.nodeid)
        owner.values = values  # those of early fakes without settings, too
        self.session_owner = owner
        # After the session's fixtures, which may use the cloud.
        item.session.addfinalizer(owner.close)
        self._observe()
        return owner

    def new_session_owner(self, values: FixtureValues, test: str) -> CloudOwner:
        """Return a new owner of the cloud of the session: on first use, or before that for early fakes,
        whose settings are not known yet.
        """
        from .cloud_owner import CloudOwner

        # Applications use the queues beside the tests, so no test could run them for all.
        return CloudOwner(self.exits, self.options, "background", None, values, test)

    def _item(self) -> pytest.Item:
        assert self.test.item is not None, "fixtures of fakes are for tests"
        return self.test.item

    @property
    def owners(self) -> tuple[CloudOwner, ...]:
        """The owners of the clouds that are open, or have been closed with the test; first that of the
        fixture ``fakecloud``, or else that of the session, which the application can use.
        """
        owners = dict.fromkeys((self.fixture_owner, self.session_owner))
        return tuple(owner for owner in owners if owner is not None)

    def _note_request(self) -> None:
        """Note whether the test has requested the fixture ``fakecloud`` so far.

        pytest keeps the value of a fixture of a wide scope, and calls nothing when a later test requests
        it. So this reads the names in pytest's private ``_request``: a public one has what was requested
        at run time only in a fixture, and an autouse fixture would be part of every test of every suite.
        """
        item = self.test.item
        names = getattr(getattr(item, "_request", None), "fixturenames", ())
        # A doctest requests fixtures at run time only, too late for variables: count each as a user.
        is_requested = "fakecloud" in names or isinstance(item, pytest.DoctestItem)
        if is_requested and self.fixture_owner is not None:
            self.test.requested_cloud = self.fixture_owner.cloud

    def settings_of_test(self) -> dict[str, Any]:
        """Return the settings of the current test, with all its markers. Only ``strict`` and ``env`` are
        read from them, because the fakes have the others from the settings of their cloud.
        """
        values = self.owners[0].values if self.owners else {}
        return self.options.merged_settings(self._item(), {**values, **self.test.values})

    def _observe(self) -> None:
        """Record what the report of the test needs to know of the open clouds, until the test ends.

        Called when a cloud opens, when a later test begins, and after the set-up of each test, which may
        have imported a framework whose requests are recorded.
        """
        test = self.test
        if not self.owners:
            return
        if test.observation is None:
            from .observation import Observation

            test.observation = Observation(self.options, self._item(), test.exits)
        test.observation.observe([owner.cloud for owner in self.owners])

    def _set_variables(self) -> None:
        """Set the variables of the fakes until the test ends, if it has requested their cloud and its
        settings say so.

        Called when the fixture opens the cloud, when a later test begins, and after the set-up of each
        test, in which a fixture may have requested the cloud at run time.
        """
        test = self.test
        if test.requested_cloud is None or test.has_variables:
            return
        if self.settings_of_test()["env"]:
            from .env import set_variables

            test.has_variables = True
            set_variables(test.requested_cloud, test.exits)

    def clouds_to_report(self) -> list[Cloud]:
        """Return the cloud that the test has requested, and the other open ones, if they were used: an
        application may call fakes that no test requests.
        """
        requested = self.test.requested_cloud
        clouds = [] if requested is None else [requested]
        for owner in self.owners:
            cloud = owner.cloud
            if cloud is requested:
                continue
            if cloud._context.recorder.entries or cloud.violations():
                clouds.append(cloud)
        return clouds

    def hints(self, cloud: Cloud, item: pytest.Item) -> list[str]:
        """Return the hints about a cloud that several tests share."""
        return [
            hint for owner in self.owners if owner.cloud is cloud for hint in owner.lost.hints(item)
        ]

    def strict_kinds(self) -> tuple[str, ...]:
        """Return the kinds of strict-mode violations that fail the current test."""
        return cast("tuple[str, ...]", self.settings_of_test()["strict"])

    # -- the phases of a test --------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Begin a test: return the open clouds to what each test begins with."""
        self.end_test()
        self.test = TestState(item)
        for owner in self.owners:
            owner.begin_test(item)
        self._catch_up()

    def end_setup(self) -> None:
        """Note what the fixtures of the test have requested and imported at run time."""
        self._catch_up()

    def _catch_up(self) -> None:
        """Note what the test has requested so far, and begin what follows from it."""
        self._note_request()
        self._observe()
        self._set_variables()

    @contextmanager
    def wide_fixture(self, definition: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Note what a fixture of a wide scope, which a with-block calls, changes in the open clouds. If
        it raises an exception, restore their baselines at once, because other tests of its scope run
        without it. What it has started then ends before the next test.
        """
        befores = {owner.cloud: owner.begin_fixture() for owner in self.owners}
        try:
            yield
        except BaseException:
            for before in befores.values():
                before.restore_baselines()
            raise
        for owner in self.owners:
            owner.end_fixture(definition, befores.get(owner.cloud))

    def begin_call(self) -> None:
        """Fail the test for settings that cannot apply, mark calls made before its own code, and start
        measuring how long it sleeps.
        """
        if not self.owners:
            return
        if self.test.observation is not None:
            self.test.observation.begin_call()
        self._note_values()
        self._check_values()
        for owner in self.owners:
            owner.begin_call()

    def _note_values(self) -> None:
        """Note the value of ``fakecloud_settings`` for a test in a wide scope, in which pytest returns
        the value of ``fakecloud`` without calling ``open_cloud()``.
        """
        from .options import SETTINGS

        arguments = getattr(self.test.item, "funcargs", {})
        if self.options.scope != "function" and SETTINGS in arguments:
            self.test.values = {SETTINGS: arguments[SETTINGS]}

    def _check_values(self) -> None:
        """Fail a test whose settings cannot apply to the clouds that outlive it."""
        from .checks import check_own_markers, check_values
        from .options import SESSION_SETTINGS, SETTINGS

        test, scope = self.test, self.options.scope
        arguments = getattr(test.item, "funcargs", {})
        former = {name: value for owner in self.owners for name, value in owner.values.items()}
        if test.requested_cloud is None:
            former.pop(SETTINGS, None)
        values = dict(test.values)
        is_session_used = scope == "session" or "fakecloud_session" in arguments
        if is_session_used and SESSION_SETTINGS in former and SESSION_SETTINGS in arguments:
            values[SESSION_SETTINGS] = arguments[SESSION_SETTINGS]
        check_own_markers(self.options, self._item())
        check_values(scope, values, former)

    def end_call(self) -> None:
        """Note that the test's own code has ended, and what it has requested at run time."""
        self.test.has_run = True
        self._note_request()

    def end_test(self) -> None:
        """End what ends with the test, and forget it and the clouds that have ended with it. Called
        after the report of its teardown, which reads them; if pytest was interrupted and makes no such
        report, when the next test begins or the run ends.
        """
        self.test.exits.close()
        self.test = TestState()
        if self.fixture_owner is not None and self.fixture_owner.has_ended:
            self.fixture_owner = None
        if self.session_owner is not None and self.session_owner.has_ended:
            self.session_owner = None

    def close(self) -> None:
        """End what has not ended before the run. Can be repeated."""
        self.exits.close()
