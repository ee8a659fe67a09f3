"""The cloud of a scope, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import pytest

from ..cloud.base import cloud_with, context_of, start_over, use_in_fixtures
from ..cloud.cloud import Cloud
from ..cloud.config import CloudConfig
from ..cloud.fake import Fake
from ..core.calls import Call
from ..core.exits import Exits, call_all
from ..core.journal import Journal
from .lost_changes import LostChanges
from .options import SESSION_SETTINGS, SETTINGS, Node, RunOptions


class CloudState(NamedTuple):
    """What a cloud has besides the baselines of its fakes, and what a fixture of a wide scope can change
    for as long as the cloud lasts.
    """

    credentials: Mapping[Fake, Mapping[str, Any]]
    """The credentials of each fake."""
    interceptions: Mapping[AbstractContextManager[object], Fake]
    """The interceptions (``Fake.intercept()``) with their fakes."""
    kept_entries: Mapping[Journal, int | None]
    """The limits of the journals by number."""
    kept_bytes: Mapping[Journal, int]
    """The limit of the cloud's journal by size."""

    @classmethod
    def of(cls, cloud: Cloud) -> CloudState:
        """Return the present state of a cloud."""
        context = context_of(cloud)
        fakes, journal = context.fakes.items, context.journal
        journals = [journal, *map(attrgetter("journal"), fakes)]
        return cls(
            {fake: fake._credentials() for fake in fakes},
            {interception: fake for fake in fakes for interception in fake._interceptions},
            {journal: journal.keep for journal in journals},
            {journal: journal.keep_bytes},
        )

    def since(self, before: CloudState) -> CloudState:
        """Return what was missing or different before."""
        return CloudState(*map(_changes, before, self))

    def with_changes(self, changes: CloudState) -> CloudState:
        return CloudState(*map(_changed, self, changes))

    def without_ended(self, now: CloudState) -> CloudState:
        """Return the state without fakes that have closed and interceptions that have ended."""
        return CloudState(*map(_remaining, self, now))


_NOTHING = CloudState({}, {}, {}, {})
_Entries: TypeAlias = Any
"""One of the mappings of a state, whose types differ."""


def _changes(before: _Entries, now: _Entries) -> _Entries:
    return {key: now[key] for key in now if key not in before or before[key] != now[key]}


def _changed(entries: _Entries, changes: _Entries) -> _Entries:
    return {**entries, **changes}


def _remaining(entries: _Entries, now: _Entries) -> _Entries:
    return {key: entries[key] for key in entries if key in now}


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the session, and in a wide scope
    of what each test begins with. That is the fakes that fixtures of a wide scope have started, their
    baselines (``Fake.set_baseline()``), and what else these fixtures have changed (``CloudState``). What
    a test has started or changed itself ends with it. In a wide scope, ``kv_server`` and the plugin's
    other fixtures are such fixtures, and so is ``fakecloud_session``.

    The owner closes its cloud when it is closed itself: by ``close()``, or else with the
    ``run_exits``.
    """

    def __init__(
        self,
        run_exits: Exits,
        options: RunOptions,
        node: Node | None,
        returned_settings: Mapping[str, Any],
        test: str,
    ) -> None:
        """Open the cloud for its first ``test``. It lasts for ``node``: a test, class or module, or if
        None the session. ``returned_settings`` are those that the fixture with its settings returned.
        """
        self.node = node
        """What the cloud lasts for; None for the session."""
        self.settings_fixture = SESSION_SETTINGS if node is None else SETTINGS
        self.returned_settings = returned_settings
        """The settings that this fixture returned when the cloud was opened."""
        settings = options.merged_settings(node, returned_settings)
        self._seed = seed = settings.cloud.seed
        """The seed of each test; None for the node id of the test."""
        # "driven": the queues deliver only when the test runs them, so that no outcome depends on the
        # speed of a thread. But applications use the queues of the session beside the tests.
        delivery = "background" if node is None else "driven"
        seed = test if seed is None else seed
        config = CloudConfig(**{**vars(settings.cloud), "seed": seed, "delivery": delivery})
        self.cloud = cloud = cloud_with(Cloud, config)
        # The exits refer to the cloud only, so that it is freed as soon as nothing has the owner.
        self._close_cloud = run_exits.callback(cloud.close)
        cache = getattr(options.config, "cache", None)  # None with -p no:cacheprovider
        use_in_fixtures(cloud, settings.fakes, cache)
        journal = context_of(cloud).journal
        self._beginning = CloudState({}, {}, {journal: journal.keep}, {journal: journal.keep_bytes})
        """What each test begins with: first the limits of a cloud without fakes."""
        self.is_reused = False
        """Whether a test has begun since the cloud was opened."""
        self.lost_changes = LostChanges()
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

    def begin_test(self, item: pytest.Item) -> None:
        """Return an open cloud of a wide scope to what each test begins with."""
        self.is_reused = True
        self.lost_changes.begin_test()
        # Fakes can have been started since the last teardown, or their end can have been interrupted. If
        # one raises, the report of this test shows no calls of the one before.
        call_all([self.end_what_test_began, partial(self._start_over, item)])

    def _start_over(self, item: pytest.Item) -> None:
        cloud = self.cloud
        start_over(cloud)
        now = self.state()
        self._beginning = self._beginning.without_ended(now)
        changed = self._beginning.since(now)
        for fake, credentials in changed.credentials.items():
            fake._set_credentials(credentials)
        for journal, entries in changed.kept_entries.items():
            journal.keep = entries
        for journal, size in changed.kept_bytes.items():
            journal.keep_bytes = size
        context_of(cloud).ids.reseed(item.nodeid if self._seed is None else self._seed)

    def begin_call(self) -> None:
        """Mark calls recorded before the test's own code, because an earlier test may have made them."""
        # Not the entries of the journal, because reading that counts as a look of the test.
        for entry in list(context_of(self.cloud).recorder.entries):
            if isinstance(entry, Call):
                entry.note = (
                    entry.note or "made before the test's own code, maybe by an earlier test"
                )

    def end_what_test_began(self) -> None:
        """Close the fakes that the test has started itself, the latest first, and end its interceptions,
        even if some raise. Can be repeated.
        """
        own = [fake for fake in self.cloud.fakes() if fake not in self._beginning.credentials]
        call_all([self._end_interceptions_of_test, *(fake.close for fake in reversed(own))])

    def _end_interceptions_of_test(self) -> None:
        for interception, fake in self.state().interceptions.items():
            if interception not in self._beginning.interceptions:
                fake._end_interception(interception)

    def state(self) -> CloudState:
        """Return the present state of the cloud."""
        return CloudState.of(self.cloud)

    def let_stay(self, before: CloudState | None = None) -> None:
        """Let each test begin with what the cloud has now and had not ``before``: fakes, credentials,
        interceptions and limits. None stands for the time before the cloud was opened.
        """
        changes = self.state().since(before or _NOTHING)
        self._beginning = self._beginning.with_changes(changes)
