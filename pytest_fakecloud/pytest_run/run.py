"""The state of one pytest run: the current test, and the clouds of the fixtures.

Every pytest run has this state, so this module imports next to nothing. Its methods import what they
need when a test first uses a fake, or for early fakes. ``docs/contributing/map.md`` shows what owns
what, and when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from ..core.exits import Exits, call_all
from .ini import value_of
from .wide_fixtures import WideFixture

if TYPE_CHECKING:
    from ..cloud.cloud import Cloud
    from ..process.applications import ServedRequest
    from ..process.surroundings import Variables
    from ..reporting.statement.failed import UnequalValues
    from .cloud_owner import CloudOwner
    from .observation import Observation
    from .options import Node, PerTestConfig, RunOptions

OpenedBy: TypeAlias = Literal["fakecloud", "fakecloud_early", "fakecloud_session"]
"""What has opened a cloud: the fixture ``fakecloud``, unless its scope is the session, early fakes until
the first test requests the cloud of the session, or that request.
"""


@dataclass
class TestState:
    """The state of one test, from its set-up until its teardown has been reported."""

    __test__ = False

    item: pytest.Item | None = None
    """The test; None before the first test and after the last one."""
    checked_markers: list[pytest.Mark] = field(default_factory=list)
    """The markers of the test that have been found valid."""
    requested_cloud: Cloud | None = None
    """The cloud of the fixture ``fakecloud``, if the test has requested it so far."""
    cloud_with_variables: Cloud | None = None
    """The requested cloud, once the variables of its fakes have been set."""
    observation: Observation | None = None
    """What is recorded for the report, once a cloud is open."""
    unequal: UnequalValues | None = None
    """The last two values that an assertion of the test found unequal."""
    exits: Exits = field(default_factory=Exits)
    """What ends with the test: what is recorded for its report, and the variables of its fakes."""
    has_begun: bool = False
    """Whether the test's own code has begun."""
    has_run: bool = False
    """Whether the test's own code has ended. pytest also reports each subtest, before."""
    has_failed_subtest: bool = False
    is_reported: bool = False
    """Whether the journal is in a report, which that of the teardown does not repeat."""
    recorded: list[Any] = field(default_factory=list)
    """The entries of the journal that are in the test's recording."""
    passed_reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The reports of the test's own code that has passed, by name, until its teardown has passed."""
    traces: list[Mapping[str, Any]] = field(default_factory=list)
    """The traces of the test's own code, until its teardown has ended."""

    def served(self, cloud: Cloud) -> list[ServedRequest]:
        """Return the requests that the application served during the test, which used this cloud."""
        return [] if self.observation is None else self.observation.served(cloud)

    def slept_seconds(self) -> float:
        """Return how long the code of the test has slept; 0 if unknown."""
        return 0.0 if self.observation is None else self.observation.slept_seconds()


class Run:
    """The state that the hooks and fixtures of one pytest run share: the current ``test``, and the
    owners of the clouds. An owner is here from the first use of its cloud, or the start of early fakes,
    until the last test of its scope has been reported.

    The hooks call for each test ``begin_test()``, ``prepare_clouds()`` after the set-up,
    ``begin_call()``, ``end_call()``, ``end_teardown()`` and ``end_test()``, and around each fixture of a
    wide scope ``wide_fixture()``.
    The plugin's fixtures open clouds by the functions of ``opening``, and call ``close_cloud()``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.test = TestState()
        self.exits = Exits()
        """What ends with the run. The clouds that are still open end first."""
        # The test ends before the variables of the early fakes, which its own may have replaced.
        self.exits.callback(self._restore_early_variables)
        self.exits.callback(self.end_test)
        self.early_variables: Variables | None = None
        """The variables of the early fakes, which last until the run ends."""
        self.fixture_parameter: Any = {}
        """The parameter of the fixture of a wide scope that was set up last; empty without one."""
        self.owners: dict[OpenedBy, CloudOwner] = {}
        """The owners of the open clouds, that of the fixtures first."""
        self._wide_fixtures: list[WideFixture] = []
        """The running fixtures of wide scopes, the innermost last."""
        self.has_warned = False
        """Whether a test has warned of settings of the session without an effect."""

    # -- settings --------------------------------------------------------------------------------

    @cached_property
    def is_early(self) -> bool:
        """Whether fakes start before the first import."""
        return bool(value_of(self.config, "fakecloud_early"))

    @cached_property
    def scope(self) -> str:
        """How long the fakes of fixtures last: function, class, module or session."""
        return "session" if self.is_early else str(value_of(self.config, "fakecloud_scope"))

    @cached_property
    def options(self) -> RunOptions:
        from .options import RunOptions

        return RunOptions(self.config, self.scope)

    # -- clouds ----------------------------------------------------------------------------------

    @property
    def fixtures_owner(self) -> CloudOwner | None:
        """The owner of the cloud of the fixture ``fakecloud``; with the scope session, the session's."""
        return self.owners.get("fakecloud_session" if self.scope == "session" else "fakecloud")

    def node_of_fakes(self, item: pytest.Item) -> Node:
        """Return what the fakes of a test's fixtures last for: test, class, module or session. Tests of
        a class within another class use the cloud that tests of the outer one have opened.
        """
        owner = self.owners.get("fakecloud")
        if owner is None or owner.has_ended or owner.node is None:
            return self.options.node_of_scope(item)
        return owner.node

    def close_cloud(self) -> None:
        """Close the cloud of the fixture ``fakecloud`` at the end of its scope, unless it lasts for the
        session.
        """
        owner = self.owners.get("fakecloud")
        if owner is not None:
            owner.close()

    def settings_of_test(self, item: pytest.Item) -> PerTestConfig:
        """Return ``strict`` and ``env`` of the current test, with the markers that it has so far."""
        owner = self.fixtures_owner
        returned_settings = {} if owner is None else owner.returned_settings
        return self.options.per_test_settings(item, returned_settings)

    def prepare_clouds(self, item: pytest.Item) -> None:
        """Do for the test what it needs of the open clouds: record until it ends what its report shows,
        and set the variables of the cloud that it has requested.

        Repeated when a cloud has opened, when the test begins, after its set-up, and after its code: a
        framework may have been imported, and a fixture requested. A test can request one by its
        arguments, and at run time in its fixtures and in its own code, and pytest does not say so if the
        fixture has its value already.
        """
        test = self.test
        if test.observation is None:
            from .observation import Observation

            test.observation = Observation(self.options, item, test.exits)
            if test.has_begun:
                test.observation.begin_call()
        test.observation.observe(self.owners.values())
        owner = self.fixtures_owner
        if test.requested_cloud is None and owner is not None and _requests_fakecloud(item):
            test.requested_cloud = owner.cloud
            self.set_variables(item)

    def set_variables(self, item: pytest.Item) -> None:
        """Set the variables of the requested cloud until the test ends, if its settings have ``env``.
        Called when the test has requested the cloud, and when its markers have changed, because a
        fixture can add one.
        """
        test, cloud = self.test, self.test.requested_cloud
        # It is too late for variables after the test's own code.
        if cloud is None or cloud is test.cloud_with_variables or test.has_run:
            return
        if self.settings_of_test(item).env:
            from .env import set_variables

            test.cloud_with_variables = cloud
            set_variables(cloud, test.exits)

    # -- for the outcome of a test ---------------------------------------------------------------

    def hints(self, cloud: Cloud, item: pytest.Item) -> list[str]:
        """Return the hints about a cloud that several tests share."""
        return [
            hint
            for owner in self.owners.values()
            if owner.cloud is cloud
            for hint in owner.lost_changes.hints(item)
        ]

    # -- the phases of a test --------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Begin a test: return the open clouds to what each test begins with."""
        if self.test.item is not None:
            self.end_test()
        self.test = TestState(item)
        if self.owners:
            call_all([partial(owner.begin_test, item) for owner in self.owners.values()])
            self.prepare_clouds(item)

    @contextmanager
    def wide_fixture(self, definition: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Return a context manager around a fixture of a wide scope, which notes what it changes in the
        open clouds.
        """
        fixture = WideFixture(definition, self.owners.values())
        self._wide_fixtures.append(fixture)
        try:
            yield
        except BaseException:
            fixture.failed()
            raise
        finally:
            self._wide_fixtures.pop()
        for outer in self._wide_fixtures:
            outer.has_requested(fixture)
        fixture.ended(self.owners.values())

    def begin_call(self, item: pytest.Item) -> None:
        """Fail the test for settings that cannot apply, mark calls made before its own code, and start
        measuring how long it sleeps.
        """
        self.test.has_begun = True
        if not self.owners:
            return
        from .checks import check_own_settings

        if self.test.observation is not None:
            self.test.observation.begin_call()
        check_own_settings(self.options, self.owners.values(), item)
        for owner in self.owners.values():
            if owner.is_reused:
                owner.begin_call()

    def end_call(self, item: pytest.Item) -> None:
        """Note that the test's own code has ended, and what it has requested and imported."""
        self.test.has_run = True
        if self.owners:
            self.prepare_clouds(item)

    def end_teardown(self) -> None:
        """End what the test has begun itself in clouds that outlive it. Can be repeated.
        What is interrupted in it ends when the next test begins, or with the cloud.
        """
        ends = []
        for owner in self.owners.values():
            if not owner.has_ended:
                ends.append(owner.end_what_test_began)
        if ends:
            call_all(ends)

    def end_test(self) -> None:
        """End what ends with the test, and forget it and the clouds that have ended with it. Called
        after the report of its teardown, which reads them; if pytest was interrupted and makes no such
        report, when the next test begins or the run ends.
        """
        self.test.exits.close()
        self.owners = {by: owner for by, owner in self.owners.items() if not owner.has_ended}
        # Last, because the next test repeats what an interruption has left undone.
        self.test = TestState()

    def _restore_early_variables(self) -> None:
        if self.early_variables is not None:
            self.early_variables.restore()

    def close(self) -> None:
        """End what has not ended before the run. Can be repeated."""
        self.exits.close()


def _requests_fakecloud(item: pytest.Item) -> bool:
    """Return whether a test has requested the fixture ``fakecloud`` so far.

    pytest keeps the value of a fixture of a wide scope, and calls nothing when a later test requests it.
    So this reads the names in pytest's private ``_request``: a public one has what was requested at run
    time only in a fixture, and an autouse fixture would be part of every test of every suite.
    """
    names = getattr(getattr(item, "_request", None), "fixturenames", ())
    # A doctest requests fixtures at run time only, too late for variables: count each as a user.
    return "fakecloud" in names or isinstance(item, pytest.DoctestItem)
