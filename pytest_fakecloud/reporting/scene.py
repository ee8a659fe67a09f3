"""Looks up journal entries for rows, findings and texts that depend on more than one entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.calls import Call, Entry, Event, faults_ended
from ..core.errors import report_failure
from ..core.timeparse import instant_us
from .bodies import items_of
from .connections import gathered
from .masking import Mask

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..queue.model import Delivery, Outcome

_SENT = 2_000
"""Maximum number of characters of a body that an attempt's event keeps."""
_LONG = 16
"""Maximum length of a consumer's name that is shown in full."""
_SINGLE = ("publish", "enqueue", "batch")


@dataclass(slots=True)
class Scene:
    """Lookups of one cloud and its journal.

    - ``ids``: the short forms of ids: messages, schedules, and long names of consumers.
    - ``published``: when each message was first published, in microseconds; ``bodies``: the
      beginning of its body.
    - ``end_offsets``: the end offsets of the partitions, by fake and topic.
    - ``attempts``: the request and the outcome of each attempt, by the number at which it began.
    - ``created_by_lost_call``: the message that a request created whose answer was lost, by the
      request's number.
    - ``grouped_calls``: calls that are shown in the row of another call (the steps of a transaction
      in its ``EXEC``), by that call's number; ``without_row`` contains the numbers of these calls.
    - ``scripts``: the sources of Lua scripts, by the first eight characters of their hash.
    - ``mask``: masks credentials that become visible when values are decoded.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    end_offsets: dict[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    attempts: dict[int, tuple[Delivery, Outcome]] = field(default_factory=dict)
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    grouped_calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    without_row: Set[int] = frozenset()
    scripts: dict[str, str] = field(default_factory=dict)
    mask: Mask = field(default_factory=Mask)

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        return self.ids.get(str(name), str(name))

    def header(self, began: object, name: str) -> str:
        """Return a header of the delivery that began at a journal number; empty if it is unknown."""
        sent = self.attempts.get(began)  # type: ignore[call-overload]
        headers = sent[0].headers if sent is not None else ()
        return next((value for one, value in headers if one.lower() == name), "")


def scene_of(cloud: AnyCloud | None, entries: Sequence[Entry]) -> Scene:
    """Return the lookups of a cloud and its journal; without a cloud, only those based on the
    entries.

    A fake that raises an exception contributes nothing. Credentials in ``gathered`` calls are
    masked.
    """
    scene = Scene()
    ids, instances = _read_entries(entries, scene)
    for handle in cloud.handles if cloud is not None else ():
        if handle.service == "queue":
            _read_queue(handle, scene, ids)
        elif handle.service == "broker":
            _read_broker(handle, scene)
    if cloud is not None:
        scene.created_by_lost_call = _messages_of_lost_calls(cloud, entries)
        groups, scene.without_row = gathered(entries)
        mask = scene.mask = Mask(cloud)
        scene.grouped_calls = {
            number: [mask.call(call) for call in calls] for number, calls in groups.items()
        }
    scene.ids = _abbreviated(ids) | _abbreviated_names(instances)
    return scene


def _read_entries(entries: Iterable[Entry], scene: Scene) -> tuple[set[str], set[str]]:
    """Add entries to a scene; return the IDs of messages and the instances of consumer groups."""
    ids: set[str] = set()
    instances: set[str] = set()
    for entry in entries:
        if isinstance(entry, Event):
            ids.update(str(entry.data[name]) for name in ("message_id", "about")
                       if "message_id" in entry.data and entry.data.get(name))  # fmt: skip
        elif entry.route in _SINGLE and has_full_answer(entry):
            _read_publish(entry, scene)
        elif entry.service == "broker":
            instances.add(str(entry.facts.get("instance")))
        elif entry.service == "kv":
            scene.scripts.update((hash_of(source)[:8], source) for source in _scripts_of(entry))
    return ids, instances


def _read_publish(call: Call, scene: Scene) -> None:
    for one in items_of(call.answer):
        if "messageId" in one and not one.get("deduplicated"):
            scene.published.setdefault(str(one["messageId"]), call.at_us)
            if call.route != "batch":
                body = call.body[: 4 * _SENT].decode("utf-8", "replace")[:_SENT]
                scene.bodies[str(one["messageId"])] = body


def _scripts_of(call: Call) -> Iterator[str]:
    for line in call.facts.get("words") or ():
        name, *arguments = line or [""]
        yield from {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())


def _read_queue(queue: Any, scene: Scene, ids: set[str]) -> None:
    with _ignored_failures():
        for message in queue.messages():
            ids.add(message.id)
            scene.published[message.id] = instant_us(message.created)
        ids.update(one.id for one in queue.schedules())
        for number, sent, outcome in tuple(queue._details.finished):
            scene.attempts[number] = sent, outcome


def _read_broker(broker: Any, scene: Scene) -> None:
    with _ignored_failures():
        for topic in broker.topics():
            scene.end_offsets[broker.name, topic] = broker.topic(topic).end_offsets


def _ignored_failures() -> AbstractContextManager[None]:
    """Ignore a fake's exception: a report without its data is better than none."""
    return report_failure("", lambda line: None)


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def has_full_answer(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def executed_at(entry: Entry) -> int:
    """Return the journal number at which a call was executed: after a fault's function if one ran
    before the call, otherwise its own number.
    """
    if isinstance(entry, Call) and any(one.get("moment") == "before" for one in entry.faults):
        return faults_ended(entry)
    return entry.number


def executed_but_lost(call: Call) -> bool:
    """Return whether a call was executed although its response was lost."""
    return call.reached and call.status in (200, 201, 202) and call.outcome == "lost"


def _messages_of_lost_calls(cloud: AnyCloud, entries: Sequence[Entry]) -> dict[int, str]:
    """Return the message that each publish request with a lost response created, by the request's
    number.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    calls = [one for one in entries if isinstance(one, Call) and one.service == "queue"]
    lost = [call for call in calls if executed_but_lost(call)]
    if not lost:
        return {}
    named = b"".join(call.answer for call in calls if call not in lost)
    queues: dict[str, Any] = {one.name: one for one in cloud.handles if one.service == "queue"}
    found = {}
    for call in lost:
        alike = [
            one.id
            for one in (queues[call.handle].messages() if call.handle in queues else ())
            if (one.url, one.created) == (call.facts.get("url"), call.at)
            and one.id.encode() not in named
        ]
        if len(alike) == 1:
            found[call.number] = alike[0]
    return found


def _abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({one[:length] for one in whole}) < len(whole):
        length += 2
    return {one: one[:length] for one in whole}


def _abbreviated_names(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {one for one in names if len(one) > _LONG}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({one[-length:] for one in whole}) < len(whole):
        length += 2
    return {one: f"{one[:3]}…{one[-length:]}" for one in whole if length + 4 < len(one)}
