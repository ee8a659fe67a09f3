"""Pictures of a timeline: retries to scale on the clock, consumer groups as lanes of partitions."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.calls import Entry, Event
from ..queue.timeline import span
from .scene import Scene

__all__ = ["groups", "ladders"]

WIDTH = 640
"""The inner width of a picture, in its own units."""
LABEL = 260
"""The room right of the last step for its words."""
MOST = 12
"""How many pictures of a kind are drawn."""
_ROW = 22
_COLOURS = 6


def ladders(entries: Iterable[Entry], scene: Scene) -> list[str]:
    """One picture for each message with two attempts or more: its attempts along the clock."""
    attempts: dict[str, list[Event]] = {}
    for entry in entries:
        if isinstance(entry, Event) and entry.kind == "attempt":
            attempts.setdefault(str(entry.data.get("message_id")), []).append(entry)
    several = [(one, events) for one, events in attempts.items() if len(events) > 1]
    return [_ladder(scene.short(one), events) for one, events in several[:MOST]]


def _ladder(short: str, attempts: Sequence[Event]) -> str:
    first, last = attempts[0].at_us, attempts[-1].at_us
    whole = max(1, last - first)
    height = _ROW * len(attempts) + 8
    parts = []
    before = None
    for number, event in enumerate(attempts):
        x = 16 + (WIDTH - LABEL) * (event.at_us - first) / whole
        y = 14 + _ROW * number
        if before is not None:
            parts.append(f'<path class="step" d="M{before[0]:.1f} {before[1]}V{y}H{x:.1f}"/>')
        status = event.data.get("status")
        good = isinstance(status, int) and 200 <= status < 300
        kind = "good" if good else "bad"
        answer = "no answer" if status is None else str(status)
        waited = f" after {span(event.at_us - attempts[number - 1].at_us)}" if number else ""
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="5"/>'
            f'<text x="{x + 10:.1f}" y="{y + 4}">{number + 1}: {answer}{html.escape(waited)}</text>'
        )
        before = x, y
    url = html.escape(str(attempts[0].data.get("url")))
    title = f"{html.escape(short)} {url}: {len(attempts)} attempts in {span(last - first)}"
    return _picture(title, height, parts)


def groups(entries: Iterable[Entry]) -> list[str]:
    """One picture for each consumer group: who had which partition, from rebalance to rebalance."""
    changes: dict[tuple[str, str], list[Event]] = {}
    for entry in entries:
        if isinstance(entry, Event) and entry.service == "broker" and entry.kind == "rebalance":
            changes.setdefault((entry.handle, str(entry.data.get("group"))), []).append(entry)
    return [_group(group, events) for (_, group), events in list(changes.items())[:MOST]]


def _group(name: str, rebalances: Sequence[Event]) -> str:
    owners = [dict(_owners(event.data.get("assignment"))) for event in rebalances]
    partitions = sorted({one for owned in owners for one in owned})
    members = sorted({member for owned in owners for member in owned.values()})
    label = 150
    step = (WIDTH - label) / max(1, len(rebalances))
    parts = []
    for row, (topic, number) in enumerate(partitions):
        y = 6 + _ROW * row
        parts.append(f'<text x="0" y="{y + 14}">{html.escape(f"{topic}-{number}"[:22])}</text>')
        for column, owned in enumerate(owners):
            member = owned.get((topic, number))
            x = label + step * column
            if member is None:
                continue
            colour = members.index(member) % _COLOURS
            told = html.escape(member[: max(2, int(step / 7))])
            parts.append(
                f'<rect class="member m{colour}" x="{x:.1f}" y="{y}" width="{step - 2:.1f}" '
                f'height="{_ROW - 3}"><title>{html.escape(member)}</title></rect>'
                f'<text class="on" x="{x + 4:.1f}" y="{y + 14}">{told}</text>'
            )
    bottom = 6 + _ROW * len(partitions)
    for column, event in enumerate(rebalances):
        when = f"{event.at:%H:%M:%S}"
        parts.append(
            f'<text class="when" x="{label + step * column:.1f}" y="{bottom + 12}">{when}'
            f"<title>{html.escape(event.text)}</title></text>"
        )
    counted = f"{_count(rebalances, 'generation')}, {_count(members, 'member')}"
    title = f"group {html.escape(name)}: {counted}"
    return _picture(title, bottom + 20, parts)


def _count(items: Sequence[object], word: str) -> str:
    return f"{len(items)} {word}{'s' * (len(items) != 1)}"


def _owners(assignment: Any) -> Iterator[tuple[tuple[str, int], str]]:
    for member, partitions in (assignment or {}).items():
        for topic, number in partitions:
            yield (str(topic), int(number)), str(member)


def _picture(title: str, height: float, parts: Iterable[str]) -> str:
    return (
        f'<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {WIDTH} {height:g}" role="img">'
        f"{''.join(parts)}</svg></figure>"
    )
