"""Copies of a queue's data for snapshots.

Ids, signing keys and the clock are not part of the data. Copies share immutable records.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..model import LogEntry, Message, Outcome
from .dead_letters import DeadLetter
from .flow import FlowControl
from .ordered_queues import Queues
from .quota import QuotaUsage
from .schedules import Schedule
from .url_groups import UrlGroups

if TYPE_CHECKING:
    from .engine import Engine


class Saved(NamedTuple):
    """A copy of an engine's data, which can be restored any number of times."""

    messages: dict[str, Message]
    pending: tuple[str, ...]
    groups_of_tasks: dict[str, list[str]]
    queues: Queues
    flow: FlowControl
    url_groups: UrlGroups
    schedules: dict[str, Schedule]
    dead_letters: dict[str, DeadLetter]
    seen: dict[str, tuple[int, str]]
    usage: QuotaUsage
    logs: list[LogEntry]
    in_flight: dict[str, tuple[int, Outcome]]
    workflow: object
    waiting_for_slot: tuple[str, ...]


def _copies(messages: dict[str, Message]) -> dict[str, Message]:
    return {message_id: message.copy() for message_id, message in messages.items()}


def save(engine: Engine) -> Saved:
    """Return a copy of an engine's data. The lock must be held."""
    return Saved(
        messages=_copies(engine.messages),
        pending=tuple(engine.pending),
        groups_of_tasks={name: list(ids) for name, ids in engine.groups_of_tasks.items()},
        queues=engine.queues.copy(),
        flow=engine.flow.copy(),
        url_groups=engine.url_groups.copy(),
        schedules={name: one.copy() for name, one in engine.schedules.by_id.items()},
        dead_letters=dict(engine.dead_letters.rows),
        seen=dict(engine.publisher.deduplication.seen),
        usage=replace(engine.quota.usage),
        logs=list(engine.logs.entries),
        in_flight=dict(engine.in_flight),
        workflow=engine.workflow.snapshot(),
        waiting_for_slot=tuple(engine.waiting_for_slot),
    )


def put_back(saved: Saved, engine: Engine) -> None:
    """Restore a copy. The caller holds the lock and starts the timers.

    A message whose attempt was in progress when the copy was made becomes pending again.
    """
    engine.messages = _copies(saved.messages)
    engine.pending = {one: engine.messages[one] for one in saved.pending}
    engine.groups_of_tasks = {name: list(ids) for name, ids in saved.groups_of_tasks.items()}
    engine.queues = saved.queues.copy()
    engine.flow = saved.flow.copy()
    engine.url_groups = saved.url_groups.copy()
    engine.schedules.by_id = {name: one.copy() for name, one in saved.schedules.items()}
    engine.dead_letters.rows = dict(saved.dead_letters)
    engine.publisher.deduplication.seen = dict(saved.seen)
    engine.quota.usage = replace(saved.usage)
    engine.logs.entries = list(saved.logs)
    engine.in_flight = dict(saved.in_flight)
    engine.workflow.restore(saved.workflow)
    engine.waiting_for_slot = deque(saved.waiting_for_slot)
    engine.active = set(engine.in_flight)
    engine.overtaken = []
    now = engine.clock.now_us()
    for message in engine.pending.values():
        if message.state == "ACTIVE" and message.id not in engine.in_flight:
            message.state = "RETRY"
            message.due_us = now
