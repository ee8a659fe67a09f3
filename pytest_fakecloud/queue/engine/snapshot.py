"""Copies of all data of a queue: what ``snapshot`` takes and ``restore`` puts back.

Ids, signing keys and the clock are not data: they go on. Records that never change are shared
between the copies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from ..model import LogEntry, Message, Outcome
from .dead_letters import DeadLetter, DeadLetters
from .fifo import Queues
from .flow import FlowControl
from .publishing import Publisher
from .quota import Quota, QuotaUsage
from .schedules import Schedule, Schedules
from .state import State
from .url_groups import UrlGroups


@dataclass(frozen=True, slots=True)
class Saved:
    """One copy; opaque to everybody else, and good for any number of restores."""

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
    crowd: tuple[str, ...]


def _copies(messages: dict[str, Message]) -> dict[str, Message]:
    return {message_id: message.copy() for message_id, message in messages.items()}


def save(
    state: State,
    dead_letters: DeadLetters,
    schedules: Schedules,
    publisher: Publisher,
    quota: Quota,
) -> Saved:
    """Return a copy of an engine's data; the caller holds its lock."""
    return Saved(
        messages=_copies(state.messages),
        pending=tuple(state.pending),
        groups_of_tasks={name: list(ids) for name, ids in state.groups_of_tasks.items()},
        queues=state.queues.copy(),
        flow=state.flow.copy(),
        url_groups=state.url_groups.copy(),
        schedules={name: one.copy() for name, one in schedules.by_id.items()},
        dead_letters=dict(dead_letters.rows),
        seen=dict(publisher.seen),
        usage=replace(quota.usage),
        logs=list(state.logs.entries),
        in_flight=dict(state.in_flight),
        workflow=state.workflow.snapshot(),
        crowd=tuple(state.crowd),
    )


def put_back(
    saved: Saved,
    state: State,
    dead_letters: DeadLetters,
    schedules: Schedules,
    publisher: Publisher,
    quota: Quota,
) -> None:
    """Put a copy's data into an engine; the caller holds its lock and plans the timers anew.

    A message whose attempt was being performed when the copy was made is pending again.
    """
    state.messages = _copies(saved.messages)
    state.pending = {one: state.messages[one] for one in saved.pending}
    state.groups_of_tasks = {name: list(ids) for name, ids in saved.groups_of_tasks.items()}
    state.queues = saved.queues.copy()
    state.flow = saved.flow.copy()
    state.url_groups = saved.url_groups.copy()
    schedules.by_id = {name: one.copy() for name, one in saved.schedules.items()}
    dead_letters.rows = dict(saved.dead_letters)
    publisher.seen = dict(saved.seen)
    quota.usage = replace(saved.usage)
    state.logs.entries = list(saved.logs)
    state.in_flight = dict(saved.in_flight)
    state.workflow.restore(saved.workflow)
    state.crowd = deque(saved.crowd)
    state.active = set(state.in_flight)
    state.overtaken = []
    now = state.clock.now_us()
    for message in state.pending.values():
        if message.state == "ACTIVE" and message.id not in state.in_flight:
            message.state = "RETRY"
            message.due_us = now
