"""The words of the events of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.bodies import parsed
from ...core.errors import listed
from ...core.timers import clock_time
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall, MaskedEvent, Summary

_EVENTS = {
    "auto commit": "auto commit of {who}: {offsets}",
    "commit": "commit of {who}: {offsets}",
    "join": "{who} joined",
    "leave": "{who} left",
    "return": "{who} returned within its session",
    "crash": "{who} crashed",
    "close": "{who} was closed",
    "expire": "the session of {who} expired",
}
"""The sentence of each event of an instance."""


def summary(event: MaskedEvent, lookups: Lookups) -> Summary | None:
    """Describe an event of a consumer group; return None for any other event."""
    data = event.data
    if event.kind == "rebalance":
        _, instance = data.get("cause") or ("", "")
        reason = data.get("reason")
        if instance:
            reason = str(reason).replace(instance, lookups.short(instance))
        return Summary(f"rebalance ({reason}): group {data['group']} {_generation(data, lookups)}")
    if event.kind not in _EVENTS or "instance" not in data:
        return None
    who = f"{data['group']}/{lookups.short(data['instance'])}"
    text = _EVENTS[event.kind].format(who=who, offsets=_stored(data))
    if data.get("idle"):
        text += " because it was idle"
    if data.get("keeps"):
        text += f"; it keeps its partitions until {clock_time(data['until_us'], event.at_us)}"
    return Summary(text)


def effect(event: MaskedEvent, call: MaskedCall | None, lookups: Lookups) -> str:
    """Return what an event adds to the row of its call; empty if it only repeats the call."""
    if event.kind == "rebalance":
        return _generation(event.data, lookups)
    # The row of a commit with offsets already shows the offsets.
    is_shown = call is not None and bool(parsed(call.request_body))
    return f"committed {_stored(event.data)}" if event.kind == "commit" and not is_shown else ""


def _stored(data: Mapping[str, Any]) -> str:
    return listed([f"{topic}-{part}={offset}" for topic, part, offset in data.get("offsets") or ()])


def _generation(data: Mapping[str, Any], lookups: Lookups) -> str:
    members = []
    for member, places in (data.get("assignment") or {}).items():
        held = ", ".join(f"{topic}-{partition}" for topic, partition in places)
        members.append(f"{lookups.short(member)}: {held or 'nothing'}")
    return f"generation {data.get('generation')}: {'; '.join(members) or 'no members'}"
