"""A consumer instance on a real cluster: a client of librdkafka and the thread that polls it.

The thread polls continuously, so that the instance takes part in rebalances and keeps its position
between consume requests. Records that it reads are buffered, and count as delivered when a consume
request returns them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from ...core.timekeeper import Timekeeper
from ...core.timeparse import monotonic
from .. import errors
from ..errors import BrokerError
from ..model import ConsumerConfig, EventKind
from .cluster import Unavailable, translated, when_away

_LOOK = 0.02
"""Seconds between two polls if the last one returned no records."""
_SOON = 0.001
"""Seconds between two polls while a commit waits for its confirmation, which arrives in a poll."""
_PATIENCE = 5.0
"""Time limit in seconds for operations that run in the thread. They do not wait for the cluster."""
Told = Callable[[EventKind, str, dict[str, Any]], None]


class KafkaInstance:
    """A consumer instance with its subscription, its partitions and its buffered records.

    ``settings`` configure the Kafka consumer, which is paused when ``keep`` records are buffered.
    ``tell`` is called with events, ``unasked`` with automatic commits, and ``gone`` when the
    instance has stopped by itself. ``held`` returns the offset that the group has committed in a
    partition. Names of topics and groups are those on the cluster. ``signal`` is notified of
    changes.
    """

    def __init__(
        self,
        clock: Timekeeper,
        config: ConsumerConfig,
        settings: dict[str, Any],
        *,
        keep: int,
        idle_ms: int | None,
        tell: Told,
        gone: Callable[[KafkaInstance], None],
        held: Callable[[tuple[str, int]], int | None],
        unasked: Callable[[dict[tuple[str, int], int]], None],
    ) -> None:
        self.config = config
        self.topics: tuple[str, ...] = ()
        self.signal = clock.signal()
        self.turn = threading.Lock()
        """Held by the consume request that is in progress."""
        self.epoch = 0
        """Incremented when buffered records are discarded, so that waiting requests end."""
        self.stopped = False
        self.state: Literal["joining", "active", "rebalancing", "expired"] = "joining"
        """``joining`` until the first assignment. ``expired`` after its session in the group has
        ended.
        """
        self.in_doubt = False
        """Whether the client has lost its connections since the cluster last responded."""
        self._keep = keep
        self._idle = None if idle_ms is None else idle_ms / 1000
        self._tell = tell
        self._gone = gone
        self._held = held
        self._unasked = unasked
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()
        self._assigned: set[tuple[str, int]] = set()
        self._delivered: dict[tuple[str, int], int] = {}
        self._problems: set[tuple[str, int]] = set()
        self._paused = False
        self._used = monotonic()
        self._tasks: deque[Callable[[], None]] = deque()
        self._woken = threading.Event()
        self._commits: deque[tuple[dict[tuple[str, int], int], Future[Any]]] = deque()
        """Offsets of each requested commit, and the future that receives its confirmation."""
        callbacks = {"on_commit": self._confirm, "error_cb": when_away(self._doubt)}
        self._consumer = Consumer({**settings, **callbacks})
        self._thread = threading.Thread(target=self._run, name="fakecloud consumer", daemon=True)

    # -- called by requests ----------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        self._used = monotonic()
        if tuple(topics) == self.topics:
            return
        first, self.topics = not self.topics, tuple(topics)
        if first:
            self._thread.start()
        self.ask(
            lambda consumer: consumer.subscribe(
                list(topics),
                on_assign=self._assign,
                on_revoke=self._revoke,
                on_lost=self._lose,
            )
        )

    def ask(self, what: Callable[[Any], Any]) -> Any:
        """Call ``what(consumer)`` in the instance's thread, and return its result or raise its
        error.

        A Kafka client belongs to one thread, so calls from other threads wait until that thread's
        current poll ends.
        """
        answer: Future[Any] = Future()

        def task() -> None:
            try:
                answer.set_result(what(self._consumer))
            except Exception as error:
                answer.set_exception(error)

        self._tasks.append(task)
        self._woken.set()
        if self.stopped:
            raise Unavailable("the instance has ended")
        try:
            return answer.result(_PATIENCE)
        except TimeoutError:
            raise Unavailable("it did not respond") from None

    def commit(self, offsets: dict[tuple[str, int], int], seconds: float) -> None:
        """Commit as a member of the group, and wait at most ``seconds`` for the confirmation.

        Raises ``BrokerError``. The thread continues to poll meanwhile. librdkafka's own synchronous
        commit would take as long as a session timeout if the cluster is unavailable.
        """
        places = [Place(*tp, offset) for tp, offset in offsets.items()]
        answer: Future[Any] = Future()
        waiting = (dict(offsets), answer)
        with self._lock:
            self._commits.append(waiting)
        try:
            self.ask(lambda consumer: consumer.commit(offsets=places, asynchronous=True))
            problem = answer.result(seconds)
        except KafkaException as error:
            raise translated(error) from None
        except TimeoutError:
            raise Unavailable("it did not confirm the commit") from None
        finally:
            with self._lock:
                self._commits.remove(waiting)
        if problem is not None:
            raise translated(problem)

    def _confirm(self, error: Any, places: list[Any]) -> None:
        # Automatic commits are confirmed here, too. An automatic commit of the same offsets also
        # confirms a requested commit.
        offsets = {(place.topic, place.partition): place.offset for place in places}
        problem = error or next((place.error for place in places if place.error), None)
        with self._lock:
            for wanted, answer in self._commits:
                if wanted == offsets and not answer.done():
                    answer.set_result(problem)
                    return
        stored = {tp: at for tp, at in offsets.items() if at >= 0}
        if problem is None and stored:
            self._unasked(stored)

    def take(self, most: int, most_bytes: int) -> list[Any]:
        """Return the next messages, which then count as delivered.

        Raises ``BrokerError`` if there are no messages and a partition cannot be read.
        """
        found: list[Any] = []
        with self._lock:
            problem = None if self._waiting else next(iter(self._problems), None)
        if problem is not None:
            raise self._problem(problem)
        with self._lock:
            sizes: dict[tuple[str, int], int] = {}
            full: set[tuple[str, int]] = set()
            rest: deque[Any] = deque()
            while self._waiting and len(found) < most:
                message = self._waiting.popleft()
                tp = (message.topic(), message.partition())
                size = len(message)
                have = sizes.get(tp)
                if tp in full or (have is not None and have + size > most_bytes):
                    # Let all later records of this partition wait, too, to keep the order.
                    full.add(tp)
                    rest.append(message)
                    continue
                sizes[tp] = size + (have or 0)
                found.append(message)
                self._delivered[tp] = message.offset() + 1
            rest.extend(self._waiting)
            self._waiting = rest
            stored = [Place(*tp, self._delivered[tp]) for tp in sizes]
        self._used = monotonic()
        if stored and self.config.auto_commit:
            # Ignore errors. If these offsets are not stored, for example because the partitions
            # have just been revoked, the records are delivered a second time.
            with suppress(KafkaException, BrokerError):
                self.ask(lambda consumer: consumer.store_offsets(offsets=stored))
        return found

    def delivered(self) -> dict[tuple[str, int], int]:
        """Return the offsets that a commit without explicit offsets stores."""
        with self._lock:
            return dict(self._delivered)

    @property
    def assigned(self) -> set[tuple[str, int]]:
        with self._lock:
            return set(self._assigned)

    def committed(self, offsets: dict[tuple[str, int], int]) -> None:
        """Resume reading at committed offsets, in partitions that had no offset to start from."""
        with self._lock:
            healed = self._problems & set(offsets)
            self._problems -= healed
        if not healed:
            return
        try:
            self.ask(lambda consumer: self._go_on(consumer, {tp: offsets[tp] for tp in healed}))
        except (KafkaException, BrokerError):
            # Report these partitions again, because they are still not read.
            with self._lock:
                self._problems |= healed
            raise

    def _go_on(self, consumer: Any, offsets: dict[tuple[str, int], int]) -> None:
        # Assign the partitions again, because a partition without a position is fetched only after
        # that.
        places = []
        for place in consumer.position(consumer.assignment()):
            tp = (place.topic, place.partition)
            known = place.offset if place.offset >= 0 else OFFSET_STORED
            places.append(Place(*tp, offsets.get(tp, known)))
        consumer.assign(places)

    def stop(self) -> None:
        """Start to leave the group and to end the thread. Waiting requests return immediately."""
        self.stopped = True
        self._woken.set()
        self.signal.close()

    def join(self, seconds: float) -> None:
        """Wait until the instance has left its group and its thread has ended.

        Waits at most ``seconds``, because an unavailable cluster delays this.
        """
        if self._thread.ident is None:
            self._consumer.close()
        elif self._thread is not threading.current_thread():
            self._thread.join(seconds)

    # -- background thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.stopped:
                self._woken.clear()
                while self._tasks:
                    self._tasks.popleft()()
                self._hold_back()
                found = self._consumer.consume(self._keep, 0)
                if found:
                    self._receive(found)
                    continue
                self._woken.wait(_SOON if self._commits else _LOOK)
                if self._idle is not None and monotonic() - self._used > self._idle:
                    self.stopped = True
                    self._gone(self)
        except (KafkaException, RuntimeError) as error:
            self.stopped = True
            self._tell("lost", f"the client of the cluster ended: {error}", {})
            self._gone(self)
        finally:
            while self._tasks:
                self._tasks.popleft()()
            with self._lock:
                unconfirmed = [answer for _, answer in self._commits if not answer.done()]
            for answer in unconfirmed:
                answer.set_exception(Unavailable("the instance has ended"))
            self._consumer.close()
            self.signal.close()

    def _receive(self, messages: list[Any]) -> None:
        with self._lock:
            for message in messages:
                problem = message.error()
                tp = (message.topic(), message.partition())
                if problem is None:
                    if tp in self._assigned:
                        self._waiting.append(message)
                elif problem.code() == KafkaError._AUTO_OFFSET_RESET:
                    self._problems.add(tp)
        self.signal.notify()

    def _doubt(self) -> None:
        self.in_doubt = True
        self.signal.notify()

    def _hold_back(self) -> None:
        with self._lock:
            full, low = len(self._waiting) >= self._keep, len(self._waiting) <= self._keep // 2
        if full and not self._paused:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True
        elif low and self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False

    def _assign(self, consumer: Any, places: list[Any]) -> None:
        with self._lock:
            self._assigned = {(place.topic, place.partition) for place in places}
            self._delivered.clear()
            self._problems.clear()
            self.state = "active"
        self._paused = False
        self._tell("assigned", _shown(places), {"partitions": len(places)})
        self.signal.notify()

    def _revoke(self, consumer: Any, places: list[Any]) -> None:
        self._give_up("rebalancing")
        self._tell("revoked", _shown(places), {"partitions": len(places)})

    def _lose(self, consumer: Any, places: list[Any]) -> None:
        self._give_up("expired")
        self._tell("expire", f"its session is over; lost {_shown(places)}", {})

    def _give_up(self, state: Literal["rebalancing", "expired"]) -> None:
        with self._lock:
            self._assigned.clear()
            self._waiting.clear()
            self._delivered.clear()
            self._problems.clear()
            self.state = state
            self.epoch += 1
        self.signal.notify()

    def _problem(self, tp: tuple[str, int]) -> BrokerError:
        held = self._held(tp)
        if held is None:
            return errors.no_offset(*tp)
        return BrokerError(
            "offset_out_of_range",
            f"Offset out of range: {held} is outside of the log of {tp[0]}-{tp[1]}",
        )


def _shown(places: list[Any]) -> str:
    return ", ".join(sorted(f"{place.topic}-{place.partition}" for place in places)) or "nothing"
