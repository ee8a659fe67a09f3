"""Read calls to a broker: their topics and groups, and the positions of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core.bodies import parsed
from ...core.calls import Call
from ...reporting.calls import executed


class RecordPosition(NamedTuple):
    """The position of a record, or an offset that a group committed."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RecordPosition:
        return cls(str(record["topic"]), record["partition"], record["offset"])

    @property
    def of_partition(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.of_partition}@{self.offset}"


def topics_of(call: Call) -> list[str]:
    return [str(topic) for topic in call.facts.get("topic") or ()]


def group_of(call: Call) -> str:
    return str(call.facts.get("group"))


def positions_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in the body of a fetch request that name a partition."""
    items = list(body.get("topicPartitionOffsets") or ())
    return [body, *items] if body.get("topic") is not None else items


def received_by(call: Call) -> list[RecordPosition]:
    """Return the positions of the records that a consume call received."""
    answer = parsed(call.response_body) if call.route == "consume" and executed(call) else []
    return list(map(RecordPosition.of, answer)) if isinstance(answer, list) else []
