"""The cloud of a scope, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest

from ..cloud.base import start_over, use_in_fixtures
from ..cloud.cloud import Cloud
from ..cloud.config import CloudConfig
from ..cloud.fake import Baseline, Fake
from ..core.exits import Exits
from ..core.settings import DeliveryMode, settings_of
from .lost_changes import OPENING, CloudMoment, LostChanges, moment_of
from .options import FixtureValues, Node, RunOptions


class BeforeFixture(NamedTuple):
    """The state of a cloud before a fixture of a wide scope."""

    credentials: Mapping[Fake, Mapping[str, Any]]
    baselines: Mapping[Fake, Baseline]
    moment: CloudMoment

    def restore_baselines(self) -> None:
        """Restore the baselines that the fixture has replaced."""
        for fake, baseline in self.baselines.items():
            fake._restore_baseline(baseline)


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the session, and in a wide scope
    of what each test begins with. That is the fakes that fixtures of a wide scope have started, the
    credentials that these fixtures gave them, and their baselines (``Fake.set_baseline()``). Other
    fakes are closed before the next test. In a wide scope, ``kv_server`` and the plugin's other
    fixtures are such fixtures, and so is ``fakecloud_session``.

    With the ``delivery`` ``"driven"``, the queues deliver only when the test runs them, so that no
    outcome depends on the speed of a thread. The owner closes its cloud when it is closed itself: by
    ``close()``, or else with the ``run_exits``.
    """

    def __init__(
        self,
        run_exits: Exits,
        options: RunOptions,
        delivery: DeliveryMode,
        node: Node | None,
        values: FixtureValues,
        test: str,
    ) -> None:
        """Open the cloud for its first ``test``. It lasts for ``node``: a test, class or module, or if
        None the session.
        """
        self.values = values
        """The values of the fixtures with settings with which the cloud was opened."""
        self.settings = settings = options.merged_settings(node, values)
        """The settings of the cloud: these values, merged with markers, options and the ini file."""
        cloud_settings = {name: settings[name] for name in settings_of(CloudConfig)}
        cloud_settings |= {"seed": self._seed_of(test), "delivery": delivery}
        self.cloud = cloud = Cloud(**cloud_settings)
        # The exits refer to the cloud only, so that it is freed as soon as nothing has the owner.
        self._close_cloud = run_exits.callback(cloud.close)
        cache = getattr(options.config, "cache", None)  # None with -p no:cacheprovider
        use_in_fixtures(cloud, settings, cache)
        self._staying: dict[Fake, Mapping[str, Any]] = {}
        """The fakes that each test begins with, and their credentials."""
        self._is_reused = False
        """Whether a test has begun since the cloud was opened."""
        self.lost = LostChanges()
        self.has_ended = False
        """Whether the scope has ended, and so the cloud is closed or closing. The run forgets the owner
        only when the test ends, because the report of its teardown reads the closed cloud.
        """

    def close(self) -> None:
        """Close the cloud, because its scope has ended. If this is interrupted, the exits of the run
        repeat it.
        """
        self.has_ended = True
        self._close_cloud()

    def _seed_of(self, test: str) -> int | str:
        """Return the seed of the cloud in a test: that of its settings, or else the test's node id."""
        seed: int | str | None = self.settings["seed"]
        return test if seed is None else seed

    def begin_test(self, item: pytest.Item) -> None:
        """Return an open cloud of a wide scope to what each test begins with."""
        cloud = self.cloud
        self._is_reused = True
        for fake in cloud.fakes():
            if fake not in self._staying:
                fake.close()
        # Forget the fakes that a test has closed.
        self._staying = {
            fake: credentials for fake, credentials in self._staying.items() if not fake.closed
        }
        # Before the reset, which these changes do not survive.
        self.lost.note_losses()
        start_over(cloud)
        for fake, credentials in self._staying.items():
            if fake._credentials() != credentials:
                fake._set_credentials(credentials)
        cloud._context.ids.reseed(self._seed_of(item.nodeid))

    def begin_call(self) -> None:
        """Mark calls recorded before the test's own code, if an earlier test may have made them."""
        if not self._is_reused:
            return
        for call in self.cloud.journal.calls():
            call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def begin_fixture(self) -> BeforeFixture:
        """Return the state of the cloud before a fixture of a wide scope."""
        fakes = self.cloud.fakes()
        return BeforeFixture(
            {fake: fake._credentials() for fake in fakes},
            {fake: fake._baseline for fake in fakes},
            moment_of(self.cloud),
        )

    def end_fixture(self, definition: pytest.FixtureDef[Any], before: BeforeFixture | None) -> None:
        """Let the fakes stay that a fixture of a wide scope has started, or whose credentials it has
        rotated, even if a test requests the fixture at run time. A baseline that it has set ends with
        it. Its other changes last until the next test, whose report says so. There is no state
        ``before`` if the fixture itself has opened the cloud.
        """
        before = before or BeforeFixture({}, {}, OPENING)
        fakes, old = self.cloud.fakes(), before.credentials
        started = [fake for fake in fakes if fake not in old]
        rotated = [fake for fake in fakes if fake in old and fake._credentials() != old[fake]]
        self.let_stay([*started, *rotated])
        for fake, baseline in before.baselines.items():
            if fake._baseline is not baseline:
                definition.addfinalizer(partial(fake._restore_baseline, baseline))
        self.lost.add(definition.argname, self.cloud, before.moment)

    def let_stay(self, fakes: Iterable[Fake]) -> None:
        """Let each test begin with these fakes and their present credentials."""
        self._staying |= {fake: fake._credentials() for fake in fakes}
