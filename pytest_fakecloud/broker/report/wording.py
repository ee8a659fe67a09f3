"""Report texts for the broker: requests about records and offsets, and its findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.bodies import compact, items_of, parsed, scalar
from ...core.characters import shortened
from ...core.errors import counted, listed
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall, Repeated, Sentences, Summary, Values
from .background import BrokerBackground
from .calls import RecordPosition, group_of, positions_in, topics_of
from .lookups import BrokerLookups

_LONGEST_VALUE = 80
"""Maximum length of the value of a record, in characters."""
_WITH_CONTENT = 3
"""Maximum number of records in an answer that are shown again in full."""


def summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    """Describe a request about records or offsets; return None for any other request."""
    member, items = _member(call, lookups), items_of(call.request_body)
    done = "OK" if has_full_answer(call) else ""
    match call.route:
        case "produce":
            return Summary(_produced(call, items, lookups), _answered_positions(call))
        case "consume":
            what = f"consume {', '.join(topics_of(call))} as {member}"
            return _with_records(what, call, lookups)
        case "fetch":
            positions = _position_list(positions_in(parsed(call.request_body)))
            return _with_records(f"fetch {positions}", call, lookups)
        case "commit":
            offsets = [_committed(item, call.fake, lookups) for item in items]
            return Summary(f"commit {listed(offsets) or 'delivered offsets'} as {member}", done)
        case "committed" if items:
            partitions = listed([f"{item['topic']}-{item['partition']}" for item in items])
            return Summary(f"committed {partitions} as {member}", _answered_positions(call))
        case "delete-consumer":
            return Summary(f"delete consumer {member}", done)
    return None


def _produced(call: MaskedCall, items: Sequence[dict[str, Any]], lookups: Lookups) -> str:
    topics = topics_of(call)
    records = listed([_message(item, topics, call, lookups) for item in items])
    placed = any(item.get("partition") is not None for item in items)
    what = "produce" if placed or len(set(topics)) > 1 else f"produce {topics[0]}"
    return f"{what} {records}".strip()


def _member(call: MaskedCall, lookups: Lookups) -> str:
    return f"{group_of(call)}/{lookups.short(call.facts.get('instance'))}"


def _message(item: dict[str, Any], topics: list[str], call: MaskedCall, lookups: Lookups) -> str:
    topic, partition = str(item.get("topic") or topics[0]), item.get("partition")
    ends = lookups.of(BrokerLookups).end_offsets.get((call.fake, topic), ())
    parts = [topic] if len(set(topics)) > 1 else []
    if partition is not None:
        parts = [f"{topic}-{partition}"]
    if item.get("key"):
        parts.append(f"key {shortened(str(item['key']))}")
    elif partition is None and len(ends) > 1:
        parts.append("no key:")  # so the broker chose one of several partitions
    return " ".join([*parts, shortened(_value(item.get("value")), _LONGEST_VALUE)])


def _value(value: Any) -> str:
    """Format a record's value: JSON unchanged, any other string in quotes."""
    inner = parsed(value) if isinstance(value, str) else None
    if isinstance(inner, dict | list):
        return compact(inner)
    text = scalar(value)
    return compact(value) if text == value else text


def _answered_positions(call: MaskedCall) -> str:
    return _position_list(items_of(call.response_body)) if has_full_answer(call) else ""


def _position_list(records: Iterable[dict[str, Any]]) -> str:
    return listed([str(RecordPosition.of(record)) for record in records])


def _with_records(what: str, call: MaskedCall, lookups: Lookups) -> Summary:
    """Return a description with the records in the answer; of many that are all above, the positions."""
    if not has_full_answer(call):
        return Summary(what)
    records: dict[str, str] = {}
    for record in parsed(call.response_body) or ():
        key = f"key {shortened(record['key'])} " if record.get("key") else ""
        content = key + shortened(_value(record["value"]), _LONGEST_VALUE)
        records[str(RecordPosition.of(record))] = content
    texts = [f"{position} {content}" for position, content in records.items()]
    text, are_many = listed(texts) or "no records", len(records) > _WITH_CONTENT
    shown_by = [f" {content} {position}\n" for position, content in records.items()]
    repeated = [Repeated(text, listed([*records]), shown_by)] if are_many else []
    background: BrokerBackground = lookups.background.get(call.number, BrokerBackground())
    for partition, count in background.skipped.items():
        text += f" ({counted(count, 'record')} of {partition} before its start: policy latest)"
    if background.unfetched:
        counts = [f"{partition} ({counted(count, 'record')})"
                  for partition, count in background.unfetched.items()]  # fmt: skip
        text += f"; no request fetched {listed(counts)}"
    return Summary(what, text, repeated=repeated)


def _committed(item: dict[str, Any], fake: str, lookups: Lookups) -> str:
    topic, partition, offset = item["topic"], item["partition"], item["offset"]
    text = f"{topic}-{partition}={offset}"
    ends = lookups.of(BrokerLookups).end_offsets.get((fake, str(topic)), ())
    if isinstance(partition, int) and 0 <= partition < len(ends) and isinstance(offset, int):
        text += f" (the log ends at {ends[partition]})" if offset > ends[partition] else ""
    return text


def _behind(values: Values) -> str:
    offset, lags = values["committed"], values["lag"].items()
    ending = "(nothing committed)" if offset is None else f"(committed {offset})"
    parts = [f"{counted(lag, 'record')} behind in {where} {ending}" for where, lag in lags]
    owner = f", which {values['owner']} keeps, although it is gone" if values["owner"] else ""
    return f"group {values['group']} is {listed(parts)}{owner}"


def _commit_too_high(values: Values) -> str:
    partition, offset, end = shortened(values["partition"]), values["offset"], values["end"]
    text = f"group {shortened(values['group'])} committed {offset} in {partition}"
    text += f", whose end offset is {end}" if values["beyond"] else ""
    if values["next"]:
        text += f"; the last offset it received is {values['last']}, so commit {values['next']}"
    else:
        text += f"; it has received no record of {partition}"
    if values["fits"]:
        text += f"; {offset} is the next offset of {listed(list(map(shortened, values['fits'])))}"
    return text


SENTENCES: Sentences = {
    "commit_too_high": _commit_too_high,
    "commit_too_low": "group {group} received {partition}@{offset} again after it had committed "
    "{offset}: a committed offset is that of the next record, so commit {next}",
    "group_behind": _behind,
    "own_offset_committed": "group {group} received {partition}@{offset} and then committed {offset}: a "
    "committed offset is that of the next record to receive, so commit {next} once {partition}@{offset} "
    "is processed",
}
