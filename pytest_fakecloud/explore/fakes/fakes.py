"""The fakes of a cloud while it is explored: their deliveries, disturbances and baseline."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...cloud.base import BaseCloud, context_of
from ...cloud.fake import core_of
from ...cloud.services import find
from ...core.errors import ContractError
from ...core.timers import to_datetime
from ...core.touches import ALL, Touch
from ...inspect.data import state_of
from ...kv.reply import python_value
from ...kv.touches import KEY_OF_DB, key_of_touch
from ..values.disturbances import HOLD_US, Kind
from ..values.names import StrandName
from .connections import Connections, MemoryLink

if TYPE_CHECKING:
    from ...cloud.fake import Fake
    from ...core.clock import Timekeeper
    from ...core.timers import Timer
    from ...kv.engine.limits import Memory
    from ...process.process_time import ProcessTime
    from ...queue.engine.schedules import MessageSchedule, Schedules
    from ...queue.fake import Queue
    from ...queue.model import Message
    from ...vector.fake import VectorIndex

ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` disturbance."""
_Key: TypeAlias = tuple[Kind, str]
"""The kind of a disturbance, and the name of the fake."""


class DueDelivery:
    """A delivery that can begin now."""

    def __init__(self, queue: Queue, message: Message, timer: Timer, ordinal: int) -> None:
        self.queue = queue
        self.message = message
        self.timer = timer
        name = StrandName.of_delivery(ordinal, len(message.attempts) + 1)
        self.first_name, self.scheduled_name = str(name.first), str(name)


def _restoring(fake: Fake) -> Callable[[], None]:
    """Return a function that restores the present tokens of a fake."""
    tokens = {name: getattr(fake, name) for name in fake._token_names}
    return partial(fake._set_credentials, tokens)


class LastingEvents:
    """The events of a trial that change a fake for a span and have not ended yet: ``hold`` and
    ``rotate_token``, at most one of each for each fake. Partitions are in
    ``CallDisturbances``, pauses in strands.

    A disturbance that is repeated lasts for its whole span from then on.
    """

    def __init__(self, clock: Timekeeper, fakes: Iterable[Fake]) -> None:
        self._clock = clock
        self._baseline = [_restoring(fake) for fake in fakes]
        self._active: dict[_Key, tuple[Callable[[], None], Timer]] = {}
        """The function that ends each disturbance, and the timer that calls it."""
        self._rotated: dict[Fake, Callable[[], None]] = {}
        """The functions that restore the tokens that the code still uses, by fake."""

    def hold(self, index: VectorIndex) -> None:
        """Keep changes of a vector index pending for a limited time."""
        from ...vector.fake import hold, release  # imported here: it needs numpy

        key: _Key = "hold", index.name
        if key not in self._active:
            hold(index)
        self._start(key, "pending changes become ready", HOLD_US, lambda: release(index))

    def rotate(self, fake: Fake) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        self._rotated.setdefault(fake, _restoring(fake))
        fake.rotate_token()
        key: _Key = "rotate_token", fake.name
        self._start(key, "the new token is known", ROTATED_US, lambda: self._rotated.pop(fake)())

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        restoring_new = [_restoring(fake) for fake in self._rotated]
        for restore in self._rotated.values():
            restore()
        try:
            yield
        finally:
            for restore in restoring_new:
                restore()

    def _start(self, key: _Key, effect: str, span_us: int, undo: Callable[[], None]) -> None:
        if key in self._active:
            _, timer = self._active.pop(key)
            timer.cancel()
        due_us = self._clock.now_us() + span_us
        timer = self._clock.call_at(due_us, lambda _: self._end(key), label=f"{key[1]}: {effect}")
        self._active[key] = undo, timer

    def _end(self, key: _Key) -> None:
        undo, timer = self._active.pop(key)
        timer.cancel()
        undo()

    def end(self) -> None:
        for key in list(self._active):
            self._end(key)

    def reset(self) -> None:
        """End all disturbances, and restore the credentials of the baseline."""
        self.end()
        for restore in self._baseline:
            restore()


DELIVERIES_END_US = 30 * 86_400 * 1_000_000
"""Microseconds after the start until which deliveries are made, as in ``run_until_idle``."""


class Deliveries:
    """The messages that the queues deliver in one trial, numbered in the order of their creation."""

    def __init__(self, queues: Sequence[Queue], start_us: int) -> None:
        self._engines = [(queue, core_of(queue).engine) for queue in queues]
        self._end_us = start_us + DELIVERIES_END_US
        self._ordinals: dict[str, int] = {}
        self._ended: list[tuple[Schedules, MessageSchedule]] = []

    def next_us(self, after_us: int = -1) -> int | None:
        if not self._engines:
            return None
        times = [engine.next_due_us() for _, engine in self._engines if engine.data.pending]
        return min(
            (at for at in times if at is not None and after_us < at <= self._end_us), default=None
        )

    def next_firing_us(self) -> int | None:
        """Return the time at which the next schedule of a queue fires, or None."""
        if not self._engines:
            return None
        times = (engine.schedules.earliest_run_us() for _, engine in self._engines)
        return min((at for at in times if at is not None), default=None)

    def end_queue_schedules(self) -> None:
        for _, engine in self._engines:
            schedules = engine.schedules
            for schedule in schedules.by_id.values():
                schedules.unplan(schedule)
                self._ended.append((schedules, schedule))

    def resume_queue_schedules(self) -> None:
        """Let the schedules fire again, because the trial has ended."""
        for schedules, schedule in self._ended:
            if schedules.by_id.get(schedule.id) is schedule:
                schedules.replan(schedule)
        self._ended.clear()

    def due(self, now_us: int) -> list[DueDelivery]:
        """Return the deliveries that can begin at a given time, in the order of their due times."""
        if not self._engines:
            return []
        # Number messages by creation, so that names do not depend on the order of delivery.
        for message in self._messages():
            self._ordinals.setdefault(message.id, len(self._ordinals) + 1)
        deliveries = [
            DueDelivery(queue, engine.data.messages[id_], timer, self._ordinals[id_])
            for queue, engine in self._engines
            for id_, timer in engine.planning.timers.items()
            if timer.lane == "driven" and timer.due_us <= now_us and not timer.cancelled
        ]
        return sorted(deliveries, key=lambda due: (due.timer.due_us, due.timer.sequence))

    def names(self) -> dict[str, str]:
        """Return the names that a story uses for messages, by message ID."""
        return {
            message.public_id: f"message {self._ordinals[message.id]}"
            for message in self._messages()
            if message.id in self._ordinals
        }

    def _messages(self) -> Iterator[Message]:
        for _, engine in self._engines:
            yield from engine.data.messages.values()


def _ended_messages(queue: Queue) -> frozenset[str]:
    engine = core_of(queue).engine
    with engine.lock:
        return frozenset(
            message.id for message in engine.data.messages.values() if not message.pending
        )


class Fakes:
    """The fakes of a cloud with what a trial needs of them; ``reset()`` prepares the next trial."""

    _start_us: int
    _data: Any
    """The state to which each trial returns."""
    _memory_left: Sequence[int]
    """The bytes that clients may add to it in each key-value engine."""

    def __init__(self, cloud: BaseCloud) -> None:
        self.cloud = cloud
        self.clock = context_of(cloud).timekeeper
        self.now_us = self.clock.now_us
        self.members = [fake for fake in cloud.fakes() if find(fake.fixture).in_process]
        self.by_name = {fake.name: fake for fake in self.members}
        self.keyspaces: dict[tuple[str, str], Any] = {
            (fake.name, f"{KEY_OF_DB}{keyspace.index}"): keyspace
            for fake in self.members
            for keyspace in getattr(core_of(fake).engine, "databases", ())
        }
        """The databases of key-value engines, by the fake and the kind of accesses to their keys."""
        engines = [core_of(fake).engine for fake in self.members]
        self._memories: list[Memory] = [
            engine.memory for engine in engines if hasattr(engine, "memory")
        ]
        """Those of the key-value engines, except for real servers."""
        queues: list[Queue] = [fake for fake in self.members if fake.fixture == "queue"]  # type: ignore[misc]
        self._queues = [queue for queue in queues if queue.delivery == "driven"]
        self._unused = {
            queue: _ended_messages(queue) for queue in queues if queue.delivery == "background"
        }
        """The queues that deliver in the background, which explored code must not use, each with the IDs
        of the messages that have ended before.
        """
        self.check_queues()
        self.connections = Connections(self.members)
        self.lasting_events = LastingEvents(self.clock, self.members)
        self.deliveries = Deliveries(self._queues, self.clock.now_us())
        self.process_time: ProcessTime | None = None
        """What makes the process's time follow the clock, if it does."""

    def time_after(self, seconds: float) -> int:
        """Return the time after some seconds, in microseconds."""
        return self.now_us() + math.ceil(seconds * 1e6)

    def check_queues(self) -> None:
        """Raise ``ContractError`` if a queue delivers messages outside of the exploration."""
        for queue, ended in self._unused.items():
            engine = core_of(queue).engine
            with engine.lock:
                is_used = bool(engine.schedules.by_id or engine.data.messages.keys() - ended)
            if is_used:
                raise ContractError(
                    f"{queue.name} delivers in the background, but explore() and every_failure() must "
                    'control the order of deliveries: start it with delivery="driven". With '
                    "fakecloud_scope = session or fakecloud_early, return "
                    '{"queue": {"delivery": "driven"}} from the fixture fakecloud_session_settings'
                )

    def set_baseline(self) -> None:
        self._start_us, self._data = self.clock.now_us(), self.cloud.snapshot()
        for memory in self._memories:
            memory.has_room()
        self._memory_left = [memory.left for memory in self._memories]

    def reset(self) -> None:
        """Return to the baseline: data, clock and credentials."""
        # Collect the oldest generation of objects that is due by the collector's own thresholds.
        counts = zip(gc.get_count(), gc.get_threshold(), strict=True)
        due = [generation for generation, (count, limit) in enumerate(counts) if count > limit > 0]
        if due:
            gc.collect(due[-1])
        self.connections.sweep()
        self._forget_sessions()
        self.lasting_events.reset()
        if self.clock.now_us() != self._start_us or self.clock.mode != "frozen":
            self.clock.rewind(to_datetime(self._start_us), "frozen")
        self.cloud.restore(self._data)
        # An engine would measure all its keys again: most of the time of a trial with 10,000 keys.
        for memory, left in zip(self._memories, self._memory_left, strict=True):
            memory.left = left
        context_of(self.cloud).ids.reseed(self.cloud.seed)
        if self.process_time is not None:
            self.process_time.reads.clear()
        self.deliveries = Deliveries(self._queues, self._start_us)
        # A queue limits the chain of messages that cause each other within a call that moves the clock.
        self.clock.moving_calls += 1

    def _forget_sessions(self) -> None:
        """End what the connections of earlier trials have begun, such as subscriptions. A client
        that a crash has ended keeps its connection until it is garbage-collected.
        """
        for fake in self.members:
            clients: Any = core_of(fake).app.clients
            for client in [*clients]:
                if isinstance(client.connection, MemoryLink):
                    client.engine.forget_state(client.session)

    def state_of(self, touch: Touch) -> object:
        """Return the value of a key, or else all data of a fake, to compare it with another trial's."""
        fake = self.by_name[touch.fake]
        keyspace = self.keyspaces.get((touch.fake, touch.kind))
        if keyspace is None or touch.name == ALL:
            return state_of(fake)
        engine: Any = core_of(fake).engine
        with engine.lock:
            engine.current()
            return python_value(keyspace.peek(key_of_touch(touch)))

    def elapsed_us(self) -> int:
        return self.clock.now_us() - self._start_us
