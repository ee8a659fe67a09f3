"""Records by their place and key, commits beside the ends of the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bodies import compact, parsed, scalar, shortened
from .summary import Scene, Summary, listed, worked

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["summary"]


def summary(call: Call, scene: Scene) -> Summary | None:
    """A call of the broker's API."""
    body = parsed(call.body) if call.body.strip() else None
    group = f"{call.facts.get('group')}/{call.facts.get('instance')}"
    topics = [str(topic) for topic in call.facts.get("topic") or ()]
    whole = worked(call)
    if call.route == "produce":
        items = body if isinstance(body, list) else [body] if isinstance(body, dict) else []
        shown = [_message(item, topics, _spread(item, call, scene)) for item in items]
        several = len(set(topics)) > 1
        what = f"produce {'' if several else topics[0]}".strip()
        return Summary(f"{what} {listed(shown)}".strip(), _places(call, several) if whole else "")
    if call.route == "consume":
        what = f"consume {', '.join(topics)} as {group}"
        return Summary(what, _records(parsed(call.answer), len(topics) > 1) if whole else "")
    if call.route == "fetch":
        what = f"fetch {listed([_offset(item) for item in _positions(body)])}"
        return Summary(what, _records(parsed(call.answer), len(topics) > 1) if whole else "")
    if call.route == "commit":
        items = body if isinstance(body, list) else [body] if isinstance(body, dict) else []
        if not items:
            what = "commit what was delivered"
        else:
            what = f"commit {listed([_committed(item, call.handle, scene) for item in items])}"
        return Summary(f"{what} as {group}", "OK" if whole else "")
    if call.route == "committed":
        items = body if isinstance(body, list) else [body]
        what = listed([f"{item['topic']}-{item['partition']}" for item in items])
        found = parsed(call.answer) if whole else []
        return Summary(f"committed {what} as {group}", listed([_offset(one) for one in found]))
    return None


def _spread(item: dict[str, Any], call: Call, scene: Scene) -> bool:
    """Whether nothing but a key keeps records like this one in one partition."""
    topic = str(item.get("topic") or call.facts["topic"][0])
    return item.get("partition") is None and len(scene.ends.get((call.handle, topic), ())) > 1


def _message(item: dict[str, Any], topics: list[str], spread: bool) -> str:
    parts = [str(item["topic"])] if len(set(topics)) > 1 else []
    if item.get("key"):
        parts.append(f"key {shortened(str(item['key']))}")
    elif spread:
        parts.append("no key:")
    if item.get("partition") is not None:
        parts.append(f"p{item['partition']}")
    return " ".join([*parts, shortened(_value(item.get("value")), 60)])


def _value(value: Any) -> str:
    """A value, in quotes where it is text that is no JSON."""
    told = scalar(value)
    return compact(value) if told == value else told


def _places(call: Call, several: bool) -> str:
    found = parsed(call.answer)
    places = found if isinstance(found, list) else [found]
    return listed([_place(one, several) for one in places])


def _place(one: dict[str, Any], several: bool) -> str:
    return f"{one['topic']} " * several + f"p{one['partition']}@{one['offset']}"


def _records(records: list[dict[str, Any]], several: bool) -> str:
    if not records:
        return "no records"
    return listed(
        [
            f"{_place(one, several)} "
            + (f"{shortened(one['key'])}=" if one.get("key") else "")
            + shortened(_value(one["value"]), 40)
            for one in records
        ]
    )


def _positions(body: Any) -> list[dict[str, Any]]:
    items = list(body.get("topicPartitionOffsets") or ())
    return [body, *items] if body.get("topic") is not None else items


def _offset(item: dict[str, Any]) -> str:
    return f"{item['topic']}-{item['partition']}@{item['offset']}"


def _committed(item: dict[str, Any], handle: str, scene: Scene) -> str:
    told = f"{item['topic']}-{item['partition']}={item['offset']}"
    ends = scene.ends.get((handle, str(item["topic"])))
    at, partition = item["offset"], item["partition"]
    if ends is not None and isinstance(partition, int) and 0 <= partition < len(ends):
        end = ends[partition]
        if isinstance(at, int) and at > end:
            told += f" (the log ends at {end})"
    return told
