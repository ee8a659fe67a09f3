"""Looks up journal entries for rows, findings and texts that depend on more than one entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.calls import Call, Entry, Event
from ..core.errors import report_failure
from ..core.timeparse import instant_us
from .bodies import parsed
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
    - ``ends``: the end offsets of the partitions, by fake and topic.
    - ``attempts``: the request and the outcome of each attempt, by the number at which it began.
    - ``made``: the messages created by requests whose answer was lost, by the request's number.
    - ``gathered``: calls that are shown in the row of another call (the steps of a transaction in
      its ``EXEC``), by that call's number; ``told`` contains the numbers of these calls.
    - ``scripts``: the sources of Lua scripts, by the first eight characters of their hash.
    - ``mask``: masks credentials that become visible when values are decoded.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    ends: dict[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    attempts: dict[int, tuple[Delivery, Outcome]] = field(default_factory=dict)
    made: Mapping[int, str] = field(default_factory=dict)
    gathered: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    told: Set[int] = frozenset()
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
    ids: set[str] = set()
    instances: set[str] = set()
    for entry in entries:
        if isinstance(entry, Event):
            ids.update(str(entry.data[name]) for name in ("message_id", "about")
                       if "message_id" in entry.data and entry.data.get(name))  # fmt: skip
        elif entry.route in _SINGLE and worked(entry):
            _published(entry, scene)
        elif entry.service == "broker":
            instances.add(str(entry.facts.get("instance")))
        elif entry.service == "kv":
            for line in entry.facts.get("words") or ():
                name, *given = line or [""]
                source = {"EVAL": given[:1], "SCRIPT": given[1:2]}.get(name.upper(), ())
                scene.scripts.update((hash_of(one)[:8], one) for one in source)
    for handle in cloud.handles if cloud is not None else ():
        with report_failure("", lambda line: None):
            if handle.service == "queue":
                for message in handle.messages():  # type: ignore[attr-defined]
                    ids.add(message.id)
                    scene.published[message.id] = instant_us(message.created)
                ids.update(one.id for one in handle.schedules())  # type: ignore[attr-defined]
                for number, sent, outcome in tuple(handle._details.finished):  # type: ignore[attr-defined]
                    scene.attempts[number] = sent, outcome
            elif handle.service == "broker":
                for topic in handle.topics():  # type: ignore[attr-defined]
                    scene.ends[handle.name, topic] = handle.topic(topic).end_offsets  # type: ignore[attr-defined]
    if cloud is not None:
        scene.made = _made(cloud, entries)
        steps, scene.told = gathered(entries)
        mask = scene.mask = Mask(cloud)
        scene.gathered = {number: [mask.call(one) for one in of] for number, of in steps.items()}
    scene.ids = _short(ids) | _short_ends(instances)
    return scene


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def worked(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def taken(call: Call) -> bool:
    """Return whether a call was executed although its response was lost."""
    return call.reached and call.status in (200, 201, 202) and call.outcome == "lost"


def _published(call: Call, scene: Scene) -> None:
    answer = parsed(call.answer)
    for one in answer if isinstance(answer, list) else [answer]:
        if isinstance(one, dict) and "messageId" in one and not one.get("deduplicated"):
            scene.published.setdefault(str(one["messageId"]), call.at_us)
            if call.route != "batch":
                body = call.body[: 4 * _SENT].decode("utf-8", "replace")[:_SENT]
                scene.bodies[str(one["messageId"])] = body


def _made(cloud: AnyCloud, entries: Sequence[Entry]) -> dict[int, str]:
    """Return the message that each publish request with a lost response created, by the request's
    number.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    calls = [one for one in entries if isinstance(one, Call) and one.service == "queue"]
    lost = [call for call in calls if taken(call)]
    if not lost:
        return {}
    named = b"".join(call.answer for call in calls if call not in lost)
    found = {}
    for handle in cloud.handles:
        if handle.service != "queue":
            continue
        messages = [one for one in handle.messages() if one.id.encode() not in named]  # type: ignore[attr-defined]
        for call in lost:
            alike = [
                one.id
                for one in messages
                if call.handle == handle.name
                and one.url == call.facts.get("url")
                and one.created == call.at
            ]
            if len(alike) == 1:
                found[call.number] = alike[0]
    return found


def _short(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8
    while len({one[:length] for one in whole}) < len(whole):
        length += 2
    return {one: one[:length] for one in whole}


def _short_ends(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {one for one in names if len(one) > _LONG}
    length = 6
    while len({one[-length:] for one in whole}) < len(whole):
        length += 2
    return {one: f"{one[:3]}…{one[-length:]}" for one in whole if length + 4 < len(one)}
