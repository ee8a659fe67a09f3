"""The calls of brokers, as the detectors read them from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...bodies import parsed
from ..look import Look, executed, items_of

if TYPE_CHECKING:
    from ....core.calls import Call


class Place(NamedTuple):
    """The position of a record, or an offset that a group committed."""

    topic: str
    partition: int
    offset: int

    @property
    def of_partition(self) -> str:
        return f"{self.topic}-{self.partition}"


def group_of(call: Call) -> str:
    return str(call.facts.get("group"))


def instance_of(call: Call) -> str:
    return str(call.facts.get("instance"))


def calls_of(look: Look, handle: Any) -> list[Call]:
    """Return the calls of a broker except those of groups of which a call is not known in full.

    What such a group has received and committed is unknown.
    """
    calls = look.calls_of(handle)
    unknown = {group_of(call) for call in calls if call.reached and not _is_known(call)}
    return [
        call for call in calls if call.facts.get("group") is None or group_of(call) not in unknown
    ]


def _is_known(call: Call) -> bool:
    consumed = call.route == "consume" and executed(call)
    return not call.cut and (not consumed or isinstance(parsed(call.answer), list))


def received_records(call: Call) -> list[dict[str, Any]]:
    """Return the records that a consume call returned."""
    answer = parsed(call.answer) if call.route == "consume" and executed(call) else []
    return answer if isinstance(answer, list) else []


def consume_calls(look: Look, handle: Any) -> Iterator[tuple[Call, str, list[Place]]]:
    """Yield each successful consume call with its group and the records that it returned."""
    for call in calls_of(look, handle):
        if call.route == "consume" and executed(call):
            yield call, group_of(call), list(map(place_of, received_records(call)))


def place_of(record: dict[str, Any]) -> Place:
    return Place(record["topic"], record["partition"], record["offset"])


def committed_places(call: Call) -> list[Place]:
    """Return the offsets that a successful commit request contains."""
    items = items_of(call.body) if call.route == "commit" and call.status == 200 else []
    return [place_of(one) for one in items if type(one.get("offset")) is int]


def groups_without_commits(handle: Any) -> set[str]:
    """Return the groups that disabled automatic commits and have committed nothing."""
    return {
        name
        for name, view in ((name, handle.group(name)) for name in handle.groups())
        if view.members
        and not view.committed
        and not any(member.config.auto_commit for member in view.members)
    }
