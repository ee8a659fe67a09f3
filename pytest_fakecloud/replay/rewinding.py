"""The data of a running cloud at each entry of its journal, for the console.

A server's journal forgets its oldest entries, and its data also changes without an entry, for example
by a restore. So the data is copied from time to time, in checkpoints, and the entries since the last
checkpoint before an entry are replayed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import Fake, Snapshot, core_of
from ..cloud.services import data_module
from ..core.calls import Call, Entry, Event, began
from ..core.errors import report_hook_failure
from ..core.ids import Ids
from ..core.timers import give_way, to_datetime
from ..inspect.data import Item, State, StateChange, can_put_back, changes_of, item_reader, state_of
from . import journal

EVERY = 500
"""Number of journal entries after which the data is copied again."""
MOST_CHECKPOINTS = 200
MOST_COPIED = 500_000
"""Maximum number of items in all copies; beyond it the oldest copies are dropped."""
MOST_ITEMS = 20_000
"""Maximum number of items of a fake whose data is copied."""
MOST_COMPARED = 2_000_000
"""Maximum number of items that are read for the versions of one item."""
_MOST_READS = 200_000
_MOST_TRIES = 50
"""Maximum number of copies that are tried while other clients go on; the last one is kept anyhow."""
_RECENT = 100
"""Number of latest entries among which an open call is looked for."""
SAME_TIME_US = 100_000
"""Maximum difference of a timer's time from that of its event: a thread reads a running clock later."""


CHANGES = ("restored", "changed")
"""The kinds of events that tell of a change of data without a call."""


class Checkpoint(NamedTuple):
    """The data of the fakes before the entry that follows the one with this number."""

    number: int
    at_us: int
    seed: int | str
    snapshots: Mapping[str, Snapshot]
    streams: Mapping[tuple[str, ...], Any]
    """The states of the random streams."""
    size: int
    """The number of items in the snapshots."""


class Unknown(Exception):
    """Raised if the data at an entry is not known; the message says why, as the end of a sentence."""


class Version(NamedTuple):
    """An item from an entry on; ``fields`` is None while it does not exist. ``number`` is 0 for what was
    there before the first known entry, and for a change without an entry.
    """

    number: int
    at_us: int
    fields: Item | None


class Rewinder:
    """Copies the data of a cloud from time to time, and returns what it was before an entry."""

    def __init__(self, cloud: BaseCloud) -> None:
        self._cloud = cloud
        self._recorder = cloud.journal._recorder
        reads = deque[tuple[int, int]](maxlen=_MOST_READS)
        context_of(cloud).timekeeper.reads = self._recorder.shared.reads = reads
        self._checkpoints: deque[Checkpoint] = deque(maxlen=MOST_CHECKPOINTS)
        self._is_due, self._tries = True, 0
        self._unwatch = self._recorder.shared.listeners.add(self._note)

    def close(self) -> None:
        self._unwatch()
        context_of(self._cloud).timekeeper.reads = self._recorder.shared.reads = None

    def note_change(self) -> None:
        """Copy the data before the next call, because it may have changed without an entry."""
        self._is_due = True

    def copy_now(self) -> None:
        """Copy the data before it changes without a call, so that it can be restored."""
        self._is_due = False
        for _ in range(_MOST_TRIES):
            number = self._recorder.reserve()
            at_us = context_of(self._cloud).timekeeper.now_us()
            checkpoint, is_exact = self._try_copy(number, at_us)
            if is_exact:
                break
            give_way()  # The other threads end their calls.
        self._keep(checkpoint)

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.append(checkpoint)
        while len(self._checkpoints) > 1 and self._copied > MOST_COPIED:
            self._checkpoints.popleft()

    def _try_copy(
        self, number: int, at_us: int, beginning: Call | None = None
    ) -> tuple[Checkpoint, bool]:
        """Copy the data after the entries up to a number, and return also whether the copy is exact.

        It is if no other call than the ``beginning`` one was open before, which may have changed the
        data or not, no delivery was under way, whose outcome the copy would lack, and no entry has
        been added meanwhile. Calls that have waited for long are not looked at.
        """
        # Under the lock, every entry with a lower number has been added.
        with self._recorder.shared.lock:
            recent = self._recorder.entries[-_RECENT:]
        is_quiet = not any(
            isinstance(entry, Call) and entry.outcome == "open" and entry is not beginning
            for entry in recent
        ) and not any(
            journal.replayed_class(fake).is_delivering(fake) for fake in self._cloud.fakes()
        )
        checkpoint = self._checkpoint(number, at_us)
        last = number if beginning is None else beginning.number
        newest = self._recorder.entries[-1:]
        return checkpoint, is_quiet and all(entry.number <= last for entry in newest)

    def _note(self, entry: Entry) -> None:
        # At the beginning of a call, its thread holds no lock.
        if not isinstance(entry, Call) or entry.outcome != "open":
            return
        last = self._checkpoints[-1].number if self._checkpoints else 0
        if self._is_due or entry.number - last > EVERY:
            self._is_due = False
            with report_hook_failure("the data could not be copied", lambda text: None):
                checkpoint, is_exact = self._try_copy(entry.number - 1, entry.at_us, entry)
                self._tries += 1
                if is_exact or self._tries == _MOST_TRIES or not self._checkpoints:
                    self._tries = 0
                    self._keep(checkpoint)
                else:
                    # Among calls of several clients, a later one may be alone.
                    self._is_due = True

    @property
    def _copied(self) -> int:
        return sum(checkpoint.size for checkpoint in self._checkpoints)

    def _checkpoint(self, number: int, at_us: int) -> Checkpoint:
        ids = context_of(self._cloud).ids
        sizes = {
            fake: _size(fake)
            for fake in self._cloud.fakes()
            if data_module(fake.fixture) is not None
            and core_of(fake).settings.get("engine") is None
        }
        copied = {fake: size for fake, size in sizes.items() if size <= MOST_ITEMS}
        snapshots = {fake.name: fake.snapshot() for fake in copied}
        size = sum(copied.values())
        return Checkpoint(number, at_us, ids.seed, snapshots, ids.states(), size)

    # -- the data at an entry --------------------------------------------------------------------

    def changes(self, number: int) -> list[StateChange]:
        """Return what an entry changed, without what the calls within it changed.

        Raises ``Unknown`` if that cannot be replayed, and ``LookupError`` without this entry.
        """
        entry = self._entry(number)
        fake = self._fake(entry)
        if isinstance(entry, Event) and entry.kind in CHANGES:
            return self._changes_without_call(entry, fake)
        first: dict[tuple[str, str], Item | None] = {}
        last: dict[tuple[str, str], Item | None] = {}
        with self._played(fake, began(entry)) as playing:
            for work in playing.works(number):
                if work.entry.number != number:
                    playing.perform(work)
                    continue
                playing.player.move_to(work.at_us)
                before = playing.state()
                playing.perform(work)
                for _, section, item, old, new in changes_of(fake.name, before, playing.state()):
                    first.setdefault((section, item), old)
                    last[section, item] = new
        return [
            StateChange(fake.name, section, item, first[section, item], new)
            for (section, item), new in last.items()
            if first[section, item] != new
        ]

    def _changes_without_call(self, event: Event, fake: Fake) -> list[StateChange]:
        """Return what a restore or another change without a call changed: up to the next copy of the
        data, which is made before the next call, or until now.
        """
        before = self.before(event.number, fake).state
        following = [copy for copy in self._usable(fake) if copy.number >= event.number]
        if following:
            with self._playing(fake, following[0]) as playing:
                after = playing.state()
        else:
            after = state_of(fake)
        changed = event.data.get("changed") or {}
        return [
            change
            for change in changes_of(fake.name, before, after)
            if not changed or change.section in changed
        ]

    def before(self, number: int, fake: Fake) -> ReplayedData:
        """Return the data of a fake just before an entry, of this fake or of another one."""
        with self._up_to(fake, self._entry(number)) as playing:
            copy = playing.player.copies[fake.name].fake
            return ReplayedData(copy.snapshot(), state_of(copy))

    def items_before(self, number: int, section: str, items: Sequence[str]) -> dict[str, Item]:
        """Return items that the fake of an entry had just before it, by name; all without ``items``."""
        entry = self._entry(number)
        fake = self._fake(entry)
        with self._up_to(fake, entry) as playing:
            data = playing.state().get(section, {})
        return {name: data[name] for name in items if name in data} if items else data

    @contextmanager
    def _up_to(self, fake: Fake, entry: Entry, *, included: bool = False) -> Iterator[_Playing]:
        """Replay the entries of a fake before an entry, of this fake or of another one, or with it."""
        first = began(entry)
        with ExitStack() as stack:
            playing = stack.enter_context(self._played(fake, first))
            try:
                for work in playing.works(entry.number if included else first - 1):
                    if included or work.order < first:
                        playing.perform(work)
            except Unknown:
                if not (isinstance(entry, Event) and entry.kind in CHANGES):
                    raise
                # A call that was open while the data changed has been executed before or after that.
                # The data was copied just before, so only calls of other clients meanwhile are missing.
                playing = stack.enter_context(self._played(fake, first))
            playing.player.move_to(entry.at_us)
            playing.check()
            yield playing

    def put_back(
        self,
        number: int,
        section: str,
        items: Sequence[str],
        record: Callable[[], object],
        *,
        after: bool = False,
    ) -> None:
        """Give items the values that they had before an entry of their fake, or after it; leave all
        others.

        ``record`` records the change, just before it: a call that another client makes meanwhile then
        comes after its entry. Raises ``Unknown`` also if items of the section cannot be put back alone;
        nothing is recorded then.
        """
        entry = self._entry(number)
        fake = self._fake(entry)
        with self._up_to(fake, entry, included=after) as playing:
            self._put_back(fake, playing, section, items, record)

    def put_back_saved(
        self,
        fake: Fake,
        snapshot: Snapshot,
        at_us: int,
        section: str,
        items: Sequence[str],
        record: Callable[[], object],
    ) -> None:
        """Give items the values that they have in a snapshot of their fake, which was taken at a time;
        otherwise as `put_back()`.
        """
        ids = context_of(self._cloud).ids
        saved = Checkpoint(0, at_us, ids.seed, {fake.name: snapshot}, ids.states(), 0)
        with self._playing(fake, saved) as playing:
            self._put_back(fake, playing, section, items, record)

    def can_put_back(self, fake: Fake, section: str) -> bool:
        """Return whether items of a section of a fake can be put back alone."""
        return can_put_back(fake, section) and not journal.obstacle(fake)

    def _put_back(
        self,
        fake: Fake,
        playing: _Playing,
        section: str,
        items: Sequence[str],
        record: Callable[[], object],
    ) -> None:
        put_back = getattr(data_module(fake.fixture), "put_back", None)
        if put_back is None:
            raise Unknown(f"items of {fake.name} cannot be put back alone")
        put_back(fake, playing.player.copies[fake.name].fake, section, items, record)
        self.note_change()

    def versions(self, fake: Fake, section: str, item: str = "") -> list[Version]:
        """Return the versions of an item, or of a whole section, oldest first, as far as the journal and
        checkpoints reach. Raises ``Unknown`` if nothing of it is known.
        """

        def read(fake: Fake) -> Item | None:
            if read_item := item_reader(fake, section, item):
                return read_item()
            items = state_of(fake).get(section)
            return items if items is None or not item else items.get(item)

        versions: list[Version] = []
        now_us = context_of(self._cloud).timekeeper.now_us()
        previous, usable = 0, self._usable(fake)
        if not usable:
            if self._recorder.forgotten[fake.name] or self._entries(fake):
                raise Unknown(_too_old(fake))
            # Nothing has happened to it, so what it has was there first.
            current = read(fake)
            return [] if current is None else [Version(0, now_us, current)]
        unknown: Unknown | None = None
        for checkpoint, following in zip(usable, [*usable[1:], None], strict=True):
            end, end_us = (None, now_us) if following is None else following[:2]
            # What cannot be replayed is unknown up to the next checkpoint only.
            try:
                with self._playing(fake, checkpoint) as playing:
                    copy = playing.player.copies[fake.name].fake
                    value = read(copy)
                    if not versions or versions[-1].fields != value:
                        number, at_us = self._restored(
                            fake, item, previous, checkpoint.number, checkpoint.at_us
                        )
                        versions.append(Version(number, at_us, value))
                    previous = checkpoint.number
                    works = playing.works(end)
                    size = 1 if item_reader(copy, section, item) else _size(copy)
                    whole = len(works) * size <= MOST_COMPARED
                    for work in [*works, None]:
                        until_us = end_us if work is None else work.at_us
                        for at_us in islice(
                            playing.due_times(until_us), MOST_COMPARED // (size + 1)
                        ):
                            value = read(copy)
                            if versions[-1].fields != value:
                                made_by = self._event_at(at_us, fake, item or section)
                                versions.append(Version(*made_by, value))
                        if work is None:
                            break
                        playing.perform(work)
                        if whole or not item or _names(work.entry, item):
                            value = read(copy)
                            if versions[-1].fields != value:
                                number, at_us = work.entry.number, work.entry.at_us
                                if value is None:
                                    # The clock may have moved on since, so that its TTL had ended.
                                    at_us = max(at_us, playing.player.time.now_us())
                                versions.append(Version(number, at_us, value))
            except Unknown as error:
                unknown, previous = error, checkpoint.number
        if unknown is not None and not versions:
            raise unknown
        current = read(fake)
        if versions[-1].fields != current:
            versions.append(
                Version(*self._restored(fake, item, previous, sys.maxsize, now_us), current)
            )
        return versions[1:] if versions[0].fields is None else versions

    def _event_at(self, at_us: int, fake: Fake, name: str) -> tuple[int, int]:
        """Return the number and the time of the last event that happened at a time of the replay and
        names an item or a section; without any, the number is 0.
        """
        names = {name, name.partition(" ")[2]} - {""}
        for entry in reversed(self._cloud.journal.entries):
            is_then = entry.fake == fake.name and abs(entry.at_us - at_us) < SAME_TIME_US
            if is_then and isinstance(entry, Event) and names & set(map(str, entry.data.values())):
                return entry.number, entry.at_us
        return 0, at_us

    def _restored(
        self, fake: Fake, item: str, since: int, until: int, at_us: int
    ) -> tuple[int, int]:
        """Return the number and the time of a fake's last restore or other recorded change between two
        checkpoints, or of the expiry of an item.

        Data that differs at a checkpoint has changed without an entry of its own. Without such an
        event, the number is 0, and the time is that of the checkpoint.
        """
        for entry in reversed(self._cloud.journal.entries):
            is_between = since < entry.number <= until and entry.fake == fake.name
            if (
                is_between
                and isinstance(entry, Event)
                and (entry.kind in CHANGES or (entry.kind == "expired" and entry.text == item))
            ):
                return entry.number, entry.at_us
        return 0, at_us

    # -- replaying -------------------------------------------------------------------------------

    def _entry(self, number: int) -> Entry:
        for entry in self._cloud.journal.entries:
            if entry.number == number:
                return entry
        raise LookupError(f"the journal has no entry {number}")

    def _fake(self, entry: Entry) -> Fake:
        for fake in self._cloud.fakes():
            if fake.name == entry.fake:
                return fake
        raise Unknown(f"{entry.fake} is closed")

    def _entries(self, fake: Fake) -> list[Entry]:
        return [entry for entry in self._cloud.journal.entries if entry.fake == fake.name]

    def _usable(self, fake: Fake) -> list[Checkpoint]:
        """Return the checkpoints after which the journal has all entries of a fake."""
        entries = self._entries(fake)
        forgot = self._recorder.forgotten[fake.name] > 0
        since = entries[0].number - 1 if forgot and entries else 0
        return [
            checkpoint
            for checkpoint in tuple(self._checkpoints)
            if checkpoint.number >= since and fake.name in checkpoint.snapshots
        ]

    def _played(self, fake: Fake, number: int) -> _Playing:
        """Return a replay from the last checkpoint before an entry."""
        usable = [checkpoint for checkpoint in self._usable(fake) if checkpoint.number < number]
        if not usable:
            raise Unknown(_too_old(fake))
        return self._playing(fake, usable[-1])

    def _playing(self, fake: Fake, checkpoint: Checkpoint) -> _Playing:
        if reason := journal.obstacle(fake):
            raise Unknown(reason)
        return _Playing(self._cloud, fake, checkpoint, self.note_change)


class ReplayedData(NamedTuple):
    """The data of a fake at an entry: a snapshot to restore, and its items."""

    snapshot: Snapshot
    state: State


class _Playing:
    """A replay of the entries of one fake after a checkpoint, for a with-block."""

    def __init__(
        self,
        cloud: BaseCloud,
        fake: Fake,
        checkpoint: Checkpoint,
        note_inexact: Callable[[], object],
    ) -> None:
        self._cloud, self._fake, self._checkpoint = cloud, fake, checkpoint
        self._note_inexact = note_inexact
        """Has the data copied, so that what follows the next call is known again."""
        self._reasons: dict[str, str] = {}
        ids = Ids(checkpoint.seed, checkpoint.streams)
        self.player = journal.Player(cloud, to_datetime(checkpoint.at_us), self._reasons, ids)
        self.player.most_items = MOST_ITEMS
        self._stack = ExitStack()

    def __enter__(self) -> _Playing:
        snapshot = self._checkpoint.snapshots[self._fake.name]
        opening = partial(self.player.open, self._fake, self._stack, snapshot)
        self.player.attempt(self._fake.name, opening)
        self.check()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def works(self, until: int | None) -> Sequence[journal.Work]:
        """Return the parts of the entries after the checkpoint, up to the entry with this number."""
        number = self._checkpoint.number
        entries = [
            entry
            for entry in self._cloud.journal.entries
            if entry.fake == self._fake.name and entry.number > number
        ]
        # A delivery that had begun begins again after a restore, which is another delivery.
        whole = [entry for entry in entries if began(entry) > number]
        works = self.player.works(whole, {})
        return [
            work for work in works if until is None or work.order <= until or _is_of(work, until)
        ]

    def perform(self, work: journal.Work) -> None:
        self.player.perform(work)
        self.check()
        # A delivery that took time ends when the clock reaches its end.
        settled_us = self.player.copies[self._fake.name].settled_us
        if settled_us > work.at_us:
            self.player.move_to(settled_us)

    def due_times(self, until_us: int) -> Iterator[int]:
        """Yield the times until another one at which only the clock may change data, each after it."""
        while (due_us := self.player.time.next_due_us(("state",))) is not None:
            if due_us > until_us:
                return
            self.player.move_to(due_us)
            yield due_us

    def state(self) -> State:
        state = self.player.states_of([self._fake.name])
        self.check()
        return state[self._fake.name]

    def check(self) -> None:
        """Raise ``Unknown`` if the replay was not exact."""
        if self._fake.name not in self.player.copies:
            self._note_inexact()
            raise Unknown(self._reasons.get(self._fake.name, "it cannot be replayed"))


def _is_of(work: journal.Work, number: int) -> bool:
    return work.entry.number == number


def _names(entry: Entry, item: str) -> bool:
    """Return whether the name of an item is in what was recorded of an entry."""
    if isinstance(entry, Call):
        return item in entry.target or item.encode("utf-8", "surrogatepass") in entry.request_body
    return isinstance(entry, Event) and item in map(str, entry.data.values())


def _size(fake: Fake) -> int:
    counts: Mapping[str, Any] = data_module(fake.fixture).counts(fake)
    return sum(size for size in counts.values() if isinstance(size, int))


def _too_old(fake: Fake) -> str:
    size = _size(fake)
    if size > MOST_ITEMS:
        return f"{fake.name} has {size:,} items, and data is kept for at most {MOST_ITEMS:,}"
    if core_of(fake).settings.get("engine") is not None:
        return "it uses a real server, whose data cannot be replayed"
    return "earlier calls were dropped, so the data before this one is not known"
