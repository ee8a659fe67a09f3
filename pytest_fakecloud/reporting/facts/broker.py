"""Facts about groups: commits beyond the end, records twice, groups that began at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..bodies import parsed
from ..summaries.summary import listed
from .look import Fact, Look

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["FACTS"]

Place = tuple[str, str, int, int]


def _consumed(look: Look, handle: Any) -> Iterator[tuple[Call, list[Place]]]:
    """Each consume call that was answered, with what its group got."""
    for call in look.calls_of(handle):
        if call.route == "consume" and call.status == 200 and call.reached:
            group = str(call.facts.get("group"))
            yield (
                call,
                [(group, r["topic"], r["partition"], r["offset"]) for r in parsed(call.answer)],
            )


def beyond_the_end(look: Look) -> Iterator[Fact]:
    """A commit of an offset that the log has not reached."""
    for handle in look.handles("broker"):
        got: dict[tuple[Any, ...], int] = {}
        for call in look.calls_of(handle):
            if call.route == "consume" and call.status == 200 and call.reached:
                for record in parsed(call.answer):
                    place = call.facts.get("group"), record["topic"], record["partition"]
                    got[place] = max(record["offset"], got.get(place, -1))
            body = parsed(call.body) if call.route == "commit" and call.status == 200 else None
            for item in body if isinstance(body, list) else [body] if body else ():
                ends = look.scene.ends.get((handle.name, item["topic"]), ())
                partition, offset = item["partition"], item["offset"]
                if partition < len(ends) and offset > ends[partition]:
                    last = got.get((call.facts["group"], item["topic"], partition))
                    upto = (
                        ""
                        if last is None
                        else f"; the last it got is {last}, so {last + 1} is next"
                    )
                    yield Fact(
                        f"{handle.name}: group {call.facts['group']} committed {offset} in "
                        f"{item['topic']}-{partition}, whose end is {ends[partition]}{upto}",
                        call.number,
                    )


def twice(look: Look) -> Iterator[Fact]:
    """A record that one group got more than once."""
    for handle in look.handles("broker"):
        got: dict[Place, list[Call]] = {}
        for call, places in _consumed(look, handle):
            for place in places:
                got.setdefault(place, []).append(call)
        alike: dict[tuple[str, tuple[str, ...], int], list[str]] = {}
        for (group, topic, partition, offset), calls in got.items():
            if len(calls) > 1:
                by = tuple(str(call.facts.get("instance")) for call in calls)
                told = f"{topic}-{partition}@{offset}"
                alike.setdefault((group, by, calls[-1].number), []).append(told)
        for (group, by, number), records in alike.items():
            if group in _uncommitting(handle):
                continue
            often = "twice" if len(by) == 2 else f"{len(by)} times"
            whom = f": by {', then by '.join(by)}" if 1 < len(set(by)) == len(by) < 4 else ""
            yield Fact(
                f"{handle.name}: group {group} got {listed(records, 4)} {often}{whom}", number
            )


def began_at_the_end(look: Look) -> Iterator[Fact]:
    """A group without commits that began behind records it never got (reset to ``latest``)."""
    for handle in look.handles("broker"):
        got: dict[tuple[str, str, int], set[int]] = {}
        first: dict[str, Call] = {}
        for call, places in _consumed(look, handle):
            first.setdefault(str(call.facts.get("group")), call)
            for group, topic, partition, offset in places:
                got.setdefault((group, topic, partition), set()).add(offset)
        for name, call in first.items():
            view = handle.group(name)
            for member in view.members:
                if member.config.auto_offset_reset != "latest":
                    continue
                for tp, position in member.position.items():
                    seen = got.get((name, tp.topic, tp.partition), set())
                    start = handle.topic(tp.topic).start_offsets[tp.partition]
                    reached = min(seen, default=position)
                    if tp in view.committed or reached is None or reached <= start:
                        continue
                    yield Fact(
                        f"{handle.name}: group {name} began at the end of {tp.topic}-"
                        f"{tp.partition} (auto.offset.reset is latest): {reached - start} earlier "
                        f"record{'s' * (reached - start > 1)} never came to it",
                        call.number,
                    )


def _uncommitting(handle: Any) -> set[str]:
    """The groups with automatic commits off that have committed nothing."""
    views = {name: handle.group(name) for name in handle.groups()}
    return {
        name
        for name, view in views.items()
        if view.members
        and not view.committed
        and not any(member.config.auto_commit for member in view.members)
    }


def never_committed(look: Look) -> Iterator[Fact]:
    """A group with automatic commits off that got records and committed nothing."""
    for handle in look.handles("broker"):
        got: dict[str, list[Place]] = {}
        last: dict[str, Call] = {}
        for call, places in _consumed(look, handle):
            for place in places:
                got.setdefault(place[0], []).append(place)
                last[place[0]] = call
        for name, places in got.items():
            if name in _uncommitting(handle):
                count = len(set(places))
                again = f" in {len(places)} deliveries" if len(places) > count else ""
                yield Fact(
                    f"{handle.name}: group {name} got {count} record{'s' * (count > 1)}{again} and "
                    "committed nothing (its automatic commits are off)",
                    last[name].number,
                )


def without_order(look: Look) -> Iterator[Fact]:
    """Records without keys that one call got from several partitions."""
    for handle in look.handles("broker"):
        for call, places in _consumed(look, handle):
            unkeyed: dict[str, set[int]] = {}
            for record in parsed(call.answer):
                if not record.get("key"):
                    unkeyed.setdefault(record["topic"], set()).add(record["partition"])
            for topic, partitions in unkeyed.items():
                if len(partitions) > 1 and len(places) > len(partitions):
                    yield Fact(
                        f"{handle.name}: {topic} was written without keys to {len(partitions)} "
                        "partitions; order holds within each of them only",
                        call.number,
                    )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    beyond_the_end,
    twice,
    began_at_the_end,
    never_committed,
    without_order,
)
