"""Methods of a broker that inspect it, wait for records and make assertions, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from ..core.calls import Call
from ..core.errors import ContractError
from ..core.field_types import ITEM, OneOf
from ..core.journal import Journal
from ..core.matching import Condition, Field, Query
from ..core.results import Results, check_predicate, expect
from ..core.timekeeper import Timekeeper
from ..core.wording import brief, counted, unknown_name
from .errors import AsMisuse, string
from .loading import Headers, header_list
from .model import OFFSET_FIELDS, RECORD_FIELDS, Record, TopicPartitionOffset, record_fields
from .views import GroupView, TopicView, found_groups, found_topics

if TYPE_CHECKING:
    from .handle import Broker, BrokerEngine

_WHOLE_RECORD = Field(ITEM, lambda record: record, bare=True)


class RecordFields(TypedDict, total=False):
    """Fields of a record that assertions can match, besides its topic and its value.

    ``headers`` is a mapping from header name to a value, a pattern or a function.
    """

    key: Condition[str]
    partition: Condition[int]
    offset: Condition[int]
    timestamp: Condition[int]
    headers: Condition[Headers | Mapping[str, Condition[str]]]


class ListedFields(RecordFields, total=False):
    """Fields by which a list of records can be filtered."""

    value: object


class BrokerAssertions:
    """The part of ``Broker`` that inspects topics and groups, waits for records and asserts."""

    _engine: BrokerEngine
    _time: Timekeeper
    journal: Journal

    def _settled(self, **names: str) -> AsMisuse:
        """Fire due timers before the engine is called, and raise its errors as ``ContractError``.

        Raises ``ContractError`` if one of the ``names`` that the test passed is not a string.
        """
        for argument, name in names.items():
            string(argument, name)
        self._time.settle()
        return AsMisuse()

    def topics(self) -> Results[TopicView]:
        """Return the topics."""
        return found_topics(cast("Broker", self), self._engine.topics.counts())

    def topic(self, name: str) -> TopicView:
        """Return a topic with its records and offsets; raise ``ContractError`` if it is unknown."""
        with self._settled(topic=name):
            self._engine.topics.check(name)
        return TopicView(cast("Broker", self), name)

    def records(self, topic: str, **where: Unpack[ListedFields]) -> Results[Record]:
        """Return the records of a topic in (partition, offset) order, optionally filtered.

        ``where`` are conditions on fields of the record, such as a value or a function of the
        field's value. Raises ``ContractError`` for an unknown topic, and for a condition that can
        never be true.
        """
        string("topic", topic)
        records = TopicView(cast("Broker", self), topic).records
        return records.where(**where) if where else records

    def groups(self) -> Results[GroupView]:
        """Return the groups that have members or committed offsets."""
        self._time.settle()
        return found_groups(cast("Broker", self), self._engine.groups.names())

    def group(self, name: str) -> GroupView:
        """Return a group with its members, partitions, committed offsets, positions and lag.

        Raises ``ContractError`` if it is unknown.
        """
        with self._settled(group=name):
            self._engine.groups.describe(name)
        return GroupView(cast("Broker", self), name)

    def assert_produced(
        self,
        topic: str,
        value: object = None,
        *,
        times: int | None = None,
        **where: Unpack[RecordFields],
    ) -> Results[Record]:
        """Assert that clients produced a matching record, and return all matching records.

        ``times`` is the exact number of records expected (at least one by default). ``value`` is a
        string, or any other object, which is compared with the record's value parsed as JSON. The
        record's headers must include ``headers``. Use ``key=""`` for records without a key. Any
        condition can also be a string with ``*``, a compiled pattern or a function. Records that
        the test itself produced do not count.
        """
        __tracebackhide__ = True
        string("topic", topic)
        wanted = {"value": value, **where, "headers": _by_name(where.get("headers"))}
        with self._settled():
            by_clients, by_test = self._engine.fetching.produced(topic)
        query = Query(_given(wanted), self._fields_of(topic), "record")
        return expect(
            f"a record in topic {topic!r}",
            by_clients,
            query,
            times=times,
            show=_shown_record,
            not_counted=((record, "the test itself produced it") for record in by_test),
            notes=lambda found: self._rejected_calls() if found < (times or 1) else (),
            if_empty="no client has produced to it",
        )

    def _fields_of(self, topic: str) -> Mapping[str, Field]:
        count = self._engine.topics.counts().get(topic)
        # A cluster may not list a new topic immediately, so accept all partition numbers then.
        return RECORD_FIELDS if count is None else record_fields(count)

    def assert_not_produced(
        self, topic: str, value: object = None, **where: Unpack[RecordFields]
    ) -> None:
        """Assert that no client has produced a matching record; see ``assert_produced()``."""
        __tracebackhide__ = True
        self.assert_produced(topic, value, times=0, **where)

    def _rejected_calls(self) -> list[str]:
        """Describe the last produce calls that were rejected or not executed."""
        rejected = [
            call
            for call in self.journal.calls()
            if call.path.startswith(("/produce", "/webhook")) and not call.reached
        ]
        return [f"  not executed: {_shown_call(call)}" for call in rejected[-5:]]

    def assert_committed(
        self,
        group: str,
        topic: Condition[str] = None,
        partition: Condition[int] = None,
        offset: Condition[int] = None,
        *,
        times: int | None = None,
    ) -> Results[TopicPartitionOffset]:
        """Assert that a group has a matching committed offset, and return all matching ones.

        ``times`` is the exact number of matching commits expected. It counts all commits that were
        made (by clients or automatically) instead of the current offsets. Raises ``ContractError``
        for an unknown topic.
        """
        __tracebackhide__ = True
        string("group", group)
        self._time.settle()
        wanted = {"topic": topic, "partition": partition, "offset": offset}
        fields = {
            **OFFSET_FIELDS,
            "topic": Field(OneOf("topic", self._engine.topics.counts()), optional=False),
        }
        query = Query(_given(wanted), fields, "committed offset")
        known = group in self._engine.groups.names()
        if times is None:
            committed = self.group(group).committed if known else {}
            offsets = [TopicPartitionOffset(*tp, at) for tp, at in committed.items()]
        else:
            offsets = [
                TopicPartitionOffset(*offset)
                for event in self.journal.events(group=group)
                if event.kind in ("commit", "auto commit")
                for offset in event.data["offsets"]
            ]
        return expect(
            f"a {'committed offset' if times is None else 'commit'} of group {group!r}",
            offsets,
            query,
            times=times,
            show=lambda at: f"{at.topic}-{at.partition}={at.offset}",
            if_empty="the group has never committed" if known else "there is no such group",
        )

    def assert_not_committed(
        self,
        group: str,
        topic: Condition[str] = None,
        partition: Condition[int] = None,
        offset: Condition[int] = None,
    ) -> None:
        """Assert that a group has never made a matching commit; see ``assert_committed()``.

        Raises ``ContractError`` for a group that never existed.
        """
        __tracebackhide__ = True
        string("group", group)
        self._time.settle()
        known = self._engine.groups.names()
        if group not in known and not self.journal.events(group=group):
            raise ContractError(unknown_name("group", group, known))
        self.assert_committed(group, topic, partition, offset, times=0)

    def assert_caught_up(self, group: str) -> GroupView:
        """Assert that a group has committed all records, and return the group."""
        __tracebackhide__ = True
        string("group", group)
        try:
            found = self.group(group)
        except ContractError as error:
            # The code under test may not have created the group yet.
            raise AssertionError(f"expected a group to be caught up, but {error}") from None
        view = found._described()
        if not view.lag:
            raise AssertionError(
                f"expected group {group!r} to be caught up, but it has neither members nor committed "
                "offsets, so it reads no topic"
            )
        if view.total_lag == 0:
            return found
        owners = {tp: name for name, owned in view.assignment.items() for tp in owned}
        lines = [
            f"expected group {group!r} to be caught up, but it is "
            f"{counted(view.total_lag, 'record')} behind"
        ]
        lines += [
            f"  {tp.topic}-{tp.partition}: committed {view.committed.get(tp, 'nothing')}, "
            f"position {view.position.get(tp, 'none')}, {lag} behind, "
            f"{'owned by ' + owners[tp] if tp in owners else 'without an owner'}"
            for tp, lag in view.lag.items()
            if lag
        ]
        raise AssertionError("\n".join(lines))

    def wait_for_record(
        self,
        topic: str,
        predicate: Callable[[Record], object] | None = None,
        *,
        timeout: float = 5.0,
        **where: Unpack[ListedFields],
    ) -> Record:
        """Wait until a topic contains a matching record, and return the first one.

        ``where`` are conditions on fields of the record. ``timeout`` is in wall-clock seconds;
        after it, an ``AssertionError`` lists the records of the topic. Raises ``ContractError`` if
        a predicate raises.
        """
        __tracebackhide__ = True
        string("topic", topic)
        check_predicate(predicate)
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:
            raise ContractError(
                f"timeout={timeout!r:.200} is invalid: pass a non-negative number of wall-clock seconds"
            )
        fields, wanted = self._fields_of(topic), {**where}
        if predicate is not None:
            wanted["predicate"] = predicate
            fields = {**fields, "predicate": _WHOLE_RECORD}
        query = Query(wanted, fields, "record")
        with AsMisuse():
            found = self._engine.fetching.wait_for(
                topic, lambda: next(filter(query, self.records(topic)), None), timeout
            )
        if found is not None:
            return found
        # Check once more, because a record may have arrived at the last moment.
        return expect(
            f"a record in topic {topic!r} within {timeout} s",
            self.records(topic),
            query,
            show=_shown_record,
            if_empty="the topic has no records",
        )[0]


def _by_name(headers: Any) -> Any:
    """Convert headers given as pairs, or in the API's form, to a mapping."""
    if not isinstance(headers, list | tuple):
        return headers
    pairs = header_list(headers)
    if len(dict(pairs)) < len(pairs):
        raise ContractError(f"headers={brief(headers)}: pass one value for each name")
    return dict(pairs)


def _given(wanted: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in wanted.items() if value is not None}


def _shown_record(record: Record) -> str:
    return f"{record.topic}-{record.partition}@{record.offset} {brief(record.value)}"


def _shown_call(call: Call) -> str:
    ended = f"{call.status}" if call.status is not None else call.outcome
    try:
        why = call.response_json()["error"]
    except (ValueError, TypeError, KeyError):
        why = call.fault or ""
    return f"{call.method} {call.target[:200]} -> {ended}" + (f": {why}" if why else "")
