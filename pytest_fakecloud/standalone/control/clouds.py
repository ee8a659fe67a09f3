"""Endpoints of clouds: clock, seed, snapshots and data of a cloud, and isolated clouds."""

from __future__ import annotations

import gzip
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...cloud.base import context_of, show_same
from ...cloud.cloud import Cloud
from ...cloud.fake import Fake, Snapshot
from ...cloud.services import data_module
from ...core.calls import Event
from ...core.errors import unknown_name
from ...core.timers import to_datetime
from ...http.messages import Answer, Request
from ...http.routing import Route
from ...inspect.data import State, StateChange, changes_of, compared, state_of
from ..failed_tests import FailedTests
from ..saving import encoded_state, saved_state
from ..state_file import checked_state, load_state
from . import shapes
from .due import next_event
from .endpoints import PREFIX, Part, Refused, compressed, contract, fake_named, fields

if TYPE_CHECKING:
    from ..api import ControlApp

States: TypeAlias = Mapping[str, State | None]
"""The data of each fake, by name; None if there is too much to compare."""
MOST_ITEMS = 20_000
"""Maximum number of items of a fake whose data is kept for comparisons."""
_MOST_CHANGES = 500
MOST_CLOUDS = 1000
MOST_FAILED = 20
"""Maximum number of clouds of failed tests that are kept."""
_LONGEST_NAME = 500
"""Maximum number of characters of a test's name that are kept."""


class Ended(NamedTuple):
    """An isolated cloud that was closed; ``test`` is the name of the test that failed with it."""

    id: str
    cloud: Cloud
    test: str


class _Running(NamedTuple):
    """The control API of a served cloud, what closes both, and the options that it was started with.

    ``test`` is the name of the failed test whose end it shows, or empty.
    """

    app: ControlApp
    closing: ExitStack
    options: Mapping[str, Any]
    test: str


Opener: TypeAlias = "Callable[[Mapping[str, Any]], AbstractContextManager[ControlApp]]"
"""Serves a cloud with its control API for a with-block; raises ``ContractError`` for bad options."""


def clock_view(cloud: Cloud) -> shapes.ClockData:
    """Return the time and the mode of a cloud's clock, what is due next, and its move."""
    clock, due, move = cloud.clock, cloud.clock.next_due(), context_of(cloud).timekeeper.move
    following = next_event(cloud)
    return {
        "now": clock.now().isoformat(),
        "mode": clock.mode,
        "next_due": None if due is None else due.isoformat(),
        "next": None
        if following is None
        else {
            "at": to_datetime(following.due_us).isoformat(),
            "kind": following.event.kind,
            "what": following.event.what,
        },
        "move": None
        if move is None
        else {
            "since": to_datetime(move.since_us).isoformat(),
            "until": to_datetime(move.until_us).isoformat(),
            "events": move.events,
        },
    }


class Kept(NamedTuple):
    """A snapshot, the data to compare it with others, and when it was taken."""

    saved: Snapshot
    states: States
    at: str


def kept_now(cloud: Cloud, states: States) -> Kept:
    """Return the data of now, whose ``states`` were read to compare them."""
    return Kept(cloud.snapshot(), states, cloud.clock.now().isoformat())


class CloudRoutes(Part):
    """Endpoints of the seed, the snapshots that the server keeps, and loading."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._snapshots: dict[str, Kept] = {}
        self._numbers = itertools.count(1)

    @classmethod
    def routes(cls) -> list[Route]:
        snapshots = f"{PREFIX}/snapshots"
        return [
            cls.route("GET", f"{PREFIX}/seed", "seed", cls.get_seed),
            cls.route("PUT", f"{PREFIX}/seed", "set_seed", cls.set_seed),
            cls.route("GET", snapshots, "snapshots", cls.get_snapshots),
            cls.route("POST", snapshots, "take_snapshot", cls.take_snapshot),
            cls.route("POST", f"{snapshots}/{{id}}", "restore_snapshot", cls.restore_snapshot),
            cls.route("DELETE", f"{snapshots}/{{id}}", "drop_snapshot", cls.drop_snapshot),
            cls.route("GET", f"{snapshots}/{{id}}/changes", "changes", cls.get_changes),
            cls.route("POST", f"{PREFIX}/load", "load", cls.load, lingers=True),
            cls.route("GET", f"{PREFIX}/saved", "saved", cls.get_saved),
            cls.route("POST", f"{PREFIX}/replay", "replay", cls.replay, lingers=True),
        ]

    def get_seed(self, request: Request) -> shapes.Seed:
        """Return the random seed."""
        return {"seed": self._cloud.seed}

    def set_seed(self, request: Request) -> shapes.Seed:
        """Restart all random number generators from another seed."""
        seed = fields(request)["seed"]
        if isinstance(seed, str) and re.search("[\ud800-\udfff]", seed):
            raise Refused(422, f"seed must be a string without lone surrogates, got {seed!r:.100}")
        context_of(self._cloud).ids.reseed(seed)
        return {"seed": self._cloud.seed}

    def get_snapshots(self, request: Request) -> list[shapes.SnapshotData]:
        """Return the snapshots that the server keeps."""
        return [self._described(name) for name in self._snapshots]

    def _described(self, name: str) -> shapes.SnapshotData:
        return {"id": name, "at": self._snapshots[name].at}

    def take_snapshot(self, request: Request) -> shapes.SnapshotData:
        """Take a snapshot of all fakes. ``{"id": name}`` names it; the default name is a number."""
        snapshot_id = fields(request).get("id")
        if snapshot_id == "":
            raise Refused(422, "the id of a snapshot must not be empty")
        if snapshot_id is None:
            snapshot_id = next(
                number for number in self._numbers if str(number) not in self._snapshots
            )
        name = str(snapshot_id)
        self._snapshots[name] = kept_now(self._cloud, states_of(self._cloud))
        return self._described(name)

    def _known(self, name: str) -> str:
        if name not in self._snapshots:
            raise Refused(404, unknown_name("snapshot", name, self._snapshots))
        return name

    def restore_snapshot(self, request: Request) -> shapes.RestoredSnapshot:
        """Restore a snapshot, or of it the data of one fake (``fake``).

        ``row`` is the number of the first row that records the restore, of which each fake that changed
        has one. It is 0 if no data differed.
        """
        only, name = fields(request).get("fake"), self._known(request.segment("id"))
        kept = self._snapshots[name]
        chosen = list(self._cloud.fakes()) if only is None else [fake_named(self._cloud, only)]
        fakes = [fake for fake in chosen if fake.name in kept.saved.data]
        if not fakes and only is not None:
            raise Refused(422, f"the snapshot {name} has no data of {only}")
        now = states_of(self._cloud)
        changed = changed_by_restore(
            {fake.name: now.get(fake.name) for fake in fakes},
            {fake.name: kept.states.get(fake.name) for fake in fakes},
        )
        row = record_restore(fakes, "", f"the snapshot {name}", changed, snapshot=name)
        for fake in fakes:
            fake.restore(kept.saved.data[fake.name])
        return {**self._described(name), "row": row}

    def drop_snapshot(self, request: Request) -> shapes.SnapshotData:
        """Delete a snapshot."""
        name = self._known(request.segment("id"))
        dropped = self._described(name)
        del self._snapshots[name]
        return dropped

    def get_changes(self, request: Request) -> shapes.Changes:
        """Return what changed since a snapshot, up to now or up to the snapshot ``?until=``.

        ``?fake=`` limits it to one fake. ``?as_restored=yes`` leaves out keys that expire at once when
        the snapshot is restored, and dead letters that are too old by now: ``not_restored`` has their
        number.
        """
        before = self._snapshots[self._known(request.segment("id"))].states
        until = request.query("until")
        if until:
            return described_changes(before, self._snapshots[self._known(until)].states)
        now = states_of(self._cloud)
        if only := request.query("fake"):
            before, now = ({only: states.get(only)} for states in (before, now))
        restored = as_restored(self._cloud, before) if is_restore(request) else before
        changes = described_changes(restored, now, now=self._cloud.fakes())
        return {**changes, "not_restored": not_restored(before, restored, now)}

    def get_saved(self, request: Request) -> Answer:
        """Return the whole state as the content of a state file: data, destinations, faults, clock.

        The response is compressed if the client accepts gzip.
        """
        body = encoded_state(saved_state(self._cloud))
        return compressed(request, body, lambda: gzip.compress(body, 1), "application/json")

    def load(self, request: Request) -> shapes.Loaded:
        """Load a state file, all of it or nothing: ``{"state": {…}, "folder": "/path"}``.

        Relative paths in it need ``folder``, an absolute path on the server.
        """
        body = fields(request)
        content, folder = body["state"], body.get("folder", "/")
        if "\0" in folder or not Path(folder).is_absolute():
            raise Refused(422, f"folder must be an absolute path, got {folder!r:.200}")
        loaded: dict[str, int] = {}

        def progress(name: str, done: int, whole: int) -> None:
            loaded[name] = max(done, loaded.get(name, 0))

        with contract():
            load_state(self._cloud, checked_state(content, "state"), Path(folder), progress)
        return {"loaded": loaded}

    def replay(self, request: Request) -> shapes.Replayed:
        """Send a recorded session to the fakes, and return the differences of the responses.

        ``{"archive": a HAR file's JSON, "into": name of a fake, "move_clock": true}``.
        """
        body = fields(request)
        into, moves = body.get("into"), body.get("move_clock", True)
        fake = None if into is None else fake_named(self._cloud, into)
        with contract():
            differences = self._cloud.replay(body["archive"], into=fake, move_clock=moves)
        return {"differences": [str(difference) for difference in differences]}


def states_of(cloud: Cloud) -> States:
    """Return the data of all fakes that have data, None for those with more than ``MOST_ITEMS``."""
    states = {fake.name: state_of(fake) for fake in cloud.fakes() if data_module(fake.fixture)}
    return {
        name: state if sum(map(len, state.values())) <= MOST_ITEMS else None
        for name, state in states.items()
    }


def is_restore(request: Request) -> bool:
    return request.query("as_restored") == "yes"


def as_restored(cloud: Cloud, states: States) -> States:
    """Return the data that a restore of these states leaves: what is due by now happens at once."""
    restored = dict(states)
    for fake in cloud.fakes():
        without_expired = getattr(data_module(fake.fixture), "without_expired", None)
        if without_expired and (state := states.get(fake.name)) is not None:
            restored[fake.name] = without_expired(fake, state)
    return restored


def described_changes(
    before: States,
    after: States,
    is_wanted: Callable[[StateChange], bool] = lambda change: True,
    now: Iterable[Fake] = (),
) -> shapes.Changes:
    """Return the differences of the data of fakes at two times.

    ``now`` are the fakes, if ``after`` is their data of now.
    """
    fakes = {fake.name: fake for fake in now}
    changes: list[StateChange] = []
    not_compared = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            not_compared.append(name)
        else:
            changes += filter(is_wanted, changes_of(name, old, new))
    sums: dict[str, dict[str, int]] = {}
    for change in changes:
        kind = "removed" if change.after is None else "changed"
        kind = "added" if change.before is None else kind
        kind = "expired" if has_expired(fakes.get(change.fake), change) else kind
        counts = sums.setdefault(change.fake, {"added": 0, "changed": 0, "removed": 0})
        counts[kind] = counts.get(kind, 0) + 1
    # Most removed items have expired.
    changes.sort(key=lambda change: change.after is None)
    return {
        "count": len(changes),
        "sums": sums,
        "changes": [
            _with_added(fakes.get(change.fake), change) for change in changes[:_MOST_CHANGES]
        ],
        "not_compared": not_compared,
        "not_restored": {},
    }


def not_restored(before: States, restored: States, after: States) -> dict[str, int]:
    """Return how many items of each section a restore of ``before`` does not bring back, because their
    time has ended. ``restored`` is what the restore leaves, ``after`` the data of now.
    """
    counts: dict[str, int] = {}
    for name, state in before.items():
        for section, items in (state or {}).items():
            left, now = ((data.get(name) or {}).get(section, {}) for data in (restored, after))
            if lost := sum(item not in left and item not in now for item in items):
                counts[section] = counts.get(section, 0) + lost
    return counts


Changed: TypeAlias = "Mapping[str, Mapping[str, Sequence[str]]]"
"""The names of changed items, by fake and by section."""


def changed_by_restore(
    before: States, after: States, is_wanted: Callable[[StateChange], bool] = lambda change: True
) -> Changed:
    """Return what a restore of the data ``after`` changes in the data ``before``, at most 100 items.

    Every fake that it changes is in the result, and those with too much data to compare.
    """
    differences = described_changes(before, after, is_wanted)
    changed: dict[str, dict[str, list[str]]] = {
        name: {} for name in sorted({*differences["sums"], *differences["not_compared"]})
    }
    for change in differences["changes"][:_MOST_IN_EVENT]:
        changed[change["fake"]].setdefault(change["section"], []).append(change["item"])
    return changed


def record_restore(
    fakes: Iterable[Fake], what: str, since: str, changed: Changed, **data: Any
) -> int:
    """Record a restore, just before it, as an event of each fake that it changes, because it does so
    without a call. What another client calls meanwhile then comes after the event.

    Without ``what``, all data of each is restored. Returns the number of the first event, 0 if nothing
    has changed.
    """
    return number_of_first(
        fake._recorder.add_event(
            "restored",
            f"{what or f'all data of {fake.name}'} to {since}",
            **data,
            changed=changed[fake.name] or None,
        )
        for fake in fakes
        if fake.name in changed
    )


class RecordOnce:
    """Records a change when it is called for the first time, by a function that returns the number of
    the row; ``row`` is that number, 0 before.
    """

    def __init__(self, record: Callable[[], int]) -> None:
        self._record: Callable[[], int] | None = record
        self.row = 0

    def __call__(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            self.row = record()


def number_of_first(events: Iterable[Event]) -> int:
    """Return the number of the first event that is recorded; 0 without one. Takes all of them."""
    numbers = [event.number for event in events]
    return numbers[0] if numbers else 0


_MOST_IN_EVENT = 100


def has_expired(fake: Fake | None, change: StateChange) -> bool:
    """Return whether an item is gone from the data of now because its TTL has ended."""
    if fake is None or change.before is None or change.after is not None:
        return False
    without_expired = getattr(data_module(fake.fixture), "without_expired", None)
    if without_expired is None:
        return False
    before = {change.section: {change.item: change.before}}
    return not without_expired(fake, before)[change.section]


def _with_added(fake: Fake | None, change: StateChange) -> shapes.ItemChange:
    """Return a change with what was added to the data of a fake, whose data of now is after it."""
    shown = shown_change(change)
    if has_expired(fake, change):
        shown["expired"] = True
    added = getattr(data_module(fake.fixture), "added", None) if fake else None
    if added is not None and change.after is not None:
        shown["added"] = added(fake, change.section, change.before, change.after, change.item)
    return shown


def shown_change(change: StateChange) -> shapes.ItemChange:
    before, after = compared(change.before, change.after)
    return {
        "fake": change.fake,
        "section": change.section,
        "item": change.item,
        "before": before,
        "after": after,
    }


class IsolatedClouds(Part):
    """Endpoints that start, list and close clouds that share nothing with each other.

    ``ended`` is called with each cloud that was closed. ``failed_tests`` has the reports of the tests
    that failed with a cloud.
    """

    def __init__(
        self,
        opener: Opener,
        ended: Callable[[Ended], object] = lambda cloud: None,
        failed_tests: FailedTests | None = None,
    ) -> None:
        self._open = opener
        self._failed_tests = failed_tests or FailedTests()
        self._report_ended = ended
        self._served: dict[str, _Running] = {}
        self._numbers = itertools.count(1)
        # Start one cloud at a time: loading a state file records the warnings of the whole process.
        self._starting = threading.Lock()
        self._lock = threading.Lock()

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            cls.route("GET", f"{PREFIX}/clouds", "clouds", cls.get_clouds),
            cls.route("POST", f"{PREFIX}/clouds", "new_cloud", cls.new_cloud),
            cls.route("DELETE", f"{PREFIX}/clouds/{{id}}", "end_cloud", cls.end_cloud),
            cls.route("POST", f"{PREFIX}/clouds/{{id}}/failed", "keep_cloud", cls.keep_cloud),
            cls.route("POST", f"{PREFIX}/clouds/{{id}}/codes", "cloud_code", cls.make_code),
        ]

    def get_clouds(self, request: Request) -> list[shapes.CloudData]:
        """Return the isolated clouds, oldest first."""
        with self._lock:
            served = list(self._served.items())
        return [
            {
                "id": id,
                "url": app.url,
                "fakes": [fake.name for fake in app.cloud.fakes()],
                "test": test,
            }
            for id, (app, _, _, test) in served
        ]

    def new_cloud(self, request: Request) -> shapes.NewCloud:
        """Start a cloud with its own clock, fakes, ports, credentials and journal.

        ``{"services": {"kv": {…}, "kv:NAME": {…}}, "seed", "now", "clock"}``; an omitted option has
        the value that the server was started with. ``PYTEST_FAKECLOUD_URL`` and
        ``PYTEST_FAKECLOUD_TOKEN`` in ``env`` belong to the new cloud's own control API.
        """
        return self._start(fields(request))

    def _start(
        self, options: Mapping[str, Any], shown: Cloud | None = None, test: str = ""
    ) -> shapes.NewCloud:
        """Start a cloud, and let it show what another one has seen when a test failed."""
        with ExitStack() as stack, contract(), self._starting:
            if len(self._served) >= MOST_CLOUDS:
                raise Refused(
                    422,
                    f"there are {MOST_CLOUDS} clouds, the maximum: close unused ones with DELETE",
                )
            app = stack.enter_context(self._open(options))
            if shown is not None:
                show_same(app.cloud, shown)
            id = str(next(self._numbers))
            new_cloud: shapes.NewCloud = {
                "id": id,
                "seed": app.cloud.seed,
                "env": app.environment(),
            }
            with self._lock:
                self._served[id] = _Running(app, stack.pop_all(), options, test)
        return new_cloud

    def keep_cloud(self, request: Request) -> shapes.KeptCloud:
        """Report a failed test, and keep a copy of its isolated cloud: ``{"test": name}``.

        ``"failure"``, the error as text, is on the page, and the report marks the data that the failing
        statement compared, given by its names or values in ``"read"``.

        The copy has the data, the journal, the violations and the time of now, and a console and
        addresses of its own. Its clock is frozen, and it delivers nothing until the clock is moved.
        It remains until it is closed, or until 20 newer ones exist.
        """
        original, body = self._known(request.segment("id")), fields(request)
        test: str = body["test"][:_LONGEST_NAME]
        if not test:
            raise Refused(422, "test must be the name of a test, got ''")
        cloud = original.app.cloud
        failed = self._failed_tests.add(cloud, test, body.get("failure", ""), body.get("read", ()))
        new_cloud = self._start(original.options, cloud, test)
        for oldest in self._kept()[:-MOST_FAILED]:
            self._end(oldest)
        return {
            **new_cloud,
            "report": failed.text,
            "statement": failed.statement,
            "page": None if failed.page is None else str(failed.page),
        }

    def end_cloud(self, request: Request) -> shapes.Closed:
        """Close an isolated cloud, with its fakes and its control API."""
        id = request.segment("id")
        self._known(id)
        self._end(id)
        return {"closed": True}

    def _kept(self) -> list[str]:
        with self._lock:
            return [id for id, running in self._served.items() if running.test]

    def numbers(self) -> tuple[int, int]:
        """Return the numbers of isolated clouds, and of those of failed tests."""
        return len(self._served), len(self._kept())

    def make_code(self, request: Request) -> shapes.ConsoleAddress:
        """Return a URL that signs one browser in to the console of an isolated cloud."""
        return {"url": self._known(request.segment("id")).app.console_url()}

    def _known(self, id: str) -> _Running:
        with self._lock:
            running = self._served.get(id)
        if running is None:
            raise Refused(404, f"there is no cloud {id!r:.100}: GET {PREFIX}/clouds lists them")
        return running

    def _end(self, id: str) -> None:
        with self._lock:
            running = self._served.pop(id, None)
        if running is not None:  # Another request may have closed it meanwhile.
            running.closing.close()
            self._report_ended(Ended(id, running.app.cloud, running.test))

    def close(self) -> None:
        """Close all isolated clouds. Called before the server closes."""
        with self._starting, self._lock:
            ids = list(self._served)
        for id in ids:
            self._end(id)
