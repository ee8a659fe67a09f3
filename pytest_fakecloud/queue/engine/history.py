"""Dead letters, the log of all messages, and how long both and the messages are kept.

A dead letter is kept for the plan's retention period on the queue's clock, a finished message for the
time set by ``history_us``. The message is forgotten together with its log, its attempts and its part
of a workflow run. A flow-control key is forgotten with the last message that used it, unless it is
pinned or paused. A message is kept until its dead letter has expired and the callbacks about it have
finished. The messages of a workflow run are kept until all of them can be forgotten.

Decided here: nothing is forgotten while the clock is moving, so that the attempts returned by the
call are complete. Listings of dead letters start with the oldest. A listing of workflow runs only
(``source=workflow``) omits their failure callbacks, because a run contains the state of its failure
callback. A retried message keeps its body, headers and settings, but not its delay, deduplication
id and attempts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import existing
from ..model import SECOND, LogEntry, Message, Outcome
from ..wire.filters import Filters, page
from .state import State

_COMPACT = 256
"""The log is not rebuilt before this many of its entries belong to forgotten messages."""


class DeadLetter(NamedTuple):
    """A dead letter with its id ``<unix-ms>-<n>``, its message, and the time at which it was added."""

    id: str
    number: int
    message_id: str
    at_us: int


class DeadLetters:
    """The dead letters, in the order in which they were added. Expired ones are removed on access."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_id: dict[str, DeadLetter] = {}
        self._count = 0

    def add(self, message: Message, at_us: int) -> str:
        letter = DeadLetter(f"{at_us // 1000}-{self._count}", self._count, message.id, at_us)
        self._count += 1
        self.by_id[letter.id] = letter
        return letter.id

    def all(self) -> list[DeadLetter]:
        """Return the dead letters that have not expired, oldest first."""
        with self._state.lock:
            self._drop_expired()
            return list(self.by_id.values())

    def get(self, dlq_id: str) -> DeadLetter:
        """Return a dead letter; raise a 404 error if it does not exist or has expired."""
        return existing(self.find(dlq_id), "dlq message", dlq_id)

    def find(self, dlq_id: str) -> DeadLetter | None:
        """Return a dead letter, or None if it does not exist or has expired."""
        with self._state.lock:
            self._drop_expired()
            return self.by_id.get(dlq_id)

    def _drop_expired(self) -> None:
        oldest = self._state.clock.now_us() - self._state.limits.retention_us
        for letter in list(self.by_id.values()):
            if letter.at_us > oldest:
                break
            del self.by_id[letter.id]

    def message(self, letter: DeadLetter) -> Message:
        return self._state.messages[letter.message_id]

    def select(self, filters: Filters) -> tuple[list[DeadLetter], str | None]:
        """Return a page of the matching dead letters, and the cursor of the next page."""
        with self._state.lock:
            no_answer = self._state.settings.no_answer_status
            letters = []
            for letter in self.all():
                message = self.message(letter)
                if filters.fields.get("source") == ["workflow"] and message.failure_of is not None:
                    continue
                status = (message.last_outcome or Outcome()).status_or(no_answer)
                if filters.matches(message, letter.at_us, status=status, dlq_id=letter.id):
                    letters.append(letter)
            return page(letters, lambda letter: letter.number, filters, latest_first=False)

    def delete(self, letters: Iterable[DeadLetter]) -> int:
        """Delete dead letters and return the number of those that still existed."""
        with self._state.lock:
            return sum(self.by_id.pop(letter.id, None) is not None for letter in letters)

    def discard(self, dlq_id: str | None) -> None:
        self.by_id.pop(dlq_id or "", None)


class History:
    """Forgets messages ``history_us`` after their end (None: never). Requires the engine's lock."""

    def __init__(self, state: State, dead_letters: DeadLetters) -> None:
        self._state = state
        self._dead_letters = dead_letters
        self._ends = state.settings.history_us is not None
        self._span_us = state.settings.history_us or 0
        self._due: list[tuple[int, str]] = []
        self._forgotten_entries = 0
        self._messages_by_key: Counter[str] = Counter()

    def note_accepted(self, message: Message) -> None:
        if self._ends and message.settings.flow is not None:
            self._messages_by_key[message.settings.flow.key] += 1

    def note_finished(self, message: Message) -> None:
        if self._ends and message.finished_us is not None:
            heapq.heappush(self._due, (message.finished_us + self._span_us, message.id))

    def restored(self) -> None:
        """Register all messages again after the engine's messages were replaced."""
        self._due, self._forgotten_entries = [], 0
        self._messages_by_key.clear()
        for message in self._state.messages.values():
            self.note_accepted(message)
            self.note_finished(message)

    def sweep(self) -> None:
        """Forget the messages that are no longer needed, unless the clock is moving."""
        if not self._due or self._state.clock.driving:
            return
        now = self._state.clock.now_us()
        while self._due and self._due[0][0] <= now:
            message = self._state.messages[heapq.heappop(self._due)[1]]
            recheck_us = self._recheck_us(message, now)
            if recheck_us is None:
                self._forget(message)
            else:
                heapq.heappush(self._due, (recheck_us, message.id))
        self._compact()

    def log_page(self, filters: Filters) -> tuple[list[LogEntry], str | None]:
        """Return a page of matching log entries, newest first, and the next page's cursor."""
        self.sweep()
        messages = self._state.messages
        rows = [
            entry
            for entry in self._state.logs
            if entry.message_id in messages
            and (
                filters.empty
                or filters.matches(
                    messages[entry.message_id],
                    entry.time_us,
                    state=entry.state,
                    status=self._status(entry),
                )
            )
        ]
        return page(rows, lambda entry: entry.number, filters, latest_first=True)

    def _status(self, entry: LogEntry) -> int | None:
        no_answer = self._state.settings.no_answer_status
        return None if entry.outcome is None else entry.outcome.status_or(no_answer)

    def _recheck_us(self, message: Message, now: int) -> int | None:
        """Return when to check again whether a message is needed; None if it is not needed now."""
        # Check again after this time at the latest: a dead letter, for example, may be deleted.
        latest = now + max(self._span_us, SECOND)
        together = (message, *self._state.workflow.companions(message))
        ends = [self._needed_until_us(one) for one in together]
        needed_until = max(latest if end is None else end for end in ends)
        return min(needed_until, latest) if needed_until > now else None

    def _needed_until_us(self, message: Message) -> int | None:
        """Return the time until which a message is needed; None if it is not known yet."""
        if message.finished_us is None or message.open_children:
            return None
        expires = message.finished_us + self._span_us
        letter = self._dead_letters.by_id.get(message.dlq_id or "")
        if letter is None:
            return expires
        return max(expires, letter.at_us + self._state.limits.retention_us)

    def _forget(self, message: Message) -> None:
        state = self._state
        del state.messages[message.id]
        self._dead_letters.discard(message.dlq_id)
        tasks = state.groups_of_tasks.get(message.public_id)
        if tasks is not None:
            tasks.remove(message.id)
            if not tasks:
                del state.groups_of_tasks[message.public_id]
        state.workflow.forget(message)
        if message.settings.flow is not None:
            self._leave(message.settings.flow.key)
        self._forgotten_entries += len(message.log)

    def _leave(self, name: str) -> None:
        """Forget a flow-control key if no message uses it any more."""
        self._messages_by_key[name] -= 1
        if self._messages_by_key[name]:
            return
        del self._messages_by_key[name]
        key = self._state.flow.keys.get(name)
        if key is not None and not (key.paused or key.pinned_parallelism or key.pinned_rate):
            del self._state.flow.keys[name]

    def _compact(self) -> None:
        state = self._state
        if self._forgotten_entries > _COMPACT and 2 * self._forgotten_entries > len(state.logs):
            state.logs = [one for one in state.logs if one.message_id in state.messages]
            self._forgotten_entries = 0
