"""The fakes of a cloud while it is explored, and the baseline to which they return."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...cloud.base import BaseCloud, context_of
from ...cloud.fake import core_of
from ...cloud.services import find
from ...core.errors import ContractError
from ...core.timers import to_datetime
from ...core.touches import ALL, Touch
from ...inspect.data import state_of
from ...kv.reply import python_value
from ...kv.touches import KEY_OF_DB, key_of_touch
from .connections import Connections
from .deliveries import Deliveries
from .lasting_events import LastingEvents
from .memory_link import MemoryLink

if TYPE_CHECKING:
    from ...kv.engine.limits import Memory
    from ...process.process_time import ProcessTime
    from ...queue.fake import Queue


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
