"""The data of a queue as plain JSON, for files that keep the state of a server.

Everything is kept: messages with their attempts and logs, what they wait for, dead letters,
schedules, and workflow runs. An attempt that is in progress when the data is saved is repeated.
Decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..cloud.fake import core_of
from ..core.errors import ContractError
from ..core.plain_data import from_plain, to_plain
from .engine.engine import QueueCopy
from .fake import Queue
from .workflow.model import WorkflowRun


class SavedQueue(NamedTuple):
    """The data of a queue. The former runs of runs are a list, because there may be very many."""

    data: QueueCopy
    former_runs: Sequence[WorkflowRun] = ()


def saved(fake: Queue) -> Any:
    """Return the data of a queue as JSON."""
    return plain_of(core_of(fake).engine.snapshot())


def load_saved(fake: Queue, content: Any, where: str) -> None:
    """Replace the data of a queue by JSON that ``saved()`` returned, as ``read_copy()`` reads it."""
    core_of(fake).engine.restore(read_copy(content, where))


def plain_of(data: QueueCopy) -> Any:
    """Return the data of an engine as JSON. The data may change."""
    for message in data.messages.values():
        # Another process numbers its moves of the clock anew, and none of them has caused a message.
        message.span, message.chain, message.causes = 0, 0, frozenset()
    former_runs: list[WorkflowRun] = []
    for run in data.runs.values():
        while run.former is not None:
            former, run.former = run.former, None
            former_runs.append(former)
            run = former
    return to_plain(SavedQueue(data, former_runs))


def read_copy(content: Any, where: str) -> QueueCopy:
    """Return the data of an engine from JSON that ``plain_of()`` returned.

    Raises ``ContractError``, which begins with the place, for any other JSON.
    """
    loaded: SavedQueue = from_plain(SavedQueue, content, where)
    data, former_runs = loaded
    latest = dict(data.runs)
    for run in former_runs:
        if run.id not in latest:
            raise ContractError(f"{where}.former_runs: there is no run {run.id!r}")
        latest[run.id].former = latest[run.id] = run
    for problem in _contradictions(data):
        raise ContractError(f"{where}.data.{problem}")
    return data


def _contradictions(data: QueueCopy) -> Iterator[str]:
    """Yield what a file that people have edited can contradict: names, and ids of other things."""
    names: list[tuple[str, Iterable[tuple[str, str]]]] = [
        ("messages", ((name, message.id) for name, message in data.messages.items())),
        ("flow_keys", ((name, key.key) for name, key in data.flow_keys.items())),
        ("url_groups", ((name, group.name) for name, group in data.url_groups.items())),
        ("queues", ((name, queue.name) for name, queue in data.queues.items())),
        ("schedules", ((name, schedule.id) for name, schedule in data.schedules.items())),
        ("bulk_actions", ((name, action.id) for name, action in data.bulk_actions.items())),
        ("runs", ((name, run.id) for name, run in data.runs.items())),
    ]
    for part, pairs in names:
        for name, own in pairs:
            if name != own:
                yield f"{part}: {name!r} and {own!r} are the names of one item"
    for part, ids in _references(data):
        for message_id in ids:
            if message_id not in data.messages:
                yield f"{part}: there is no message {message_id!r}"
    for message in data.messages.values():
        flow = message.settings.flow
        if flow is not None and flow.key not in data.flow_keys:
            yield f"messages.{message.id}: there is no flow-control key {flow.key!r}"


def _references(data: QueueCopy) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the ids of messages that other data refers to, with the part that refers to them."""
    yield "dead_letters", data.dead_letters.values()
    yield "answered", data.answered
    yield "waiting_for_slot", data.waiting_for_slot
    for ids in data.groups_of_tasks.values():
        yield "groups_of_tasks", ids
    for queue in data.queues.values():
        yield f"queues.{queue.name}", [*queue.active, *queue.parked, *queue.waiting]
    for key in data.flow_keys.values():
        yield f"flow_keys.{key.key}", [*key.active, *key.waiting]
