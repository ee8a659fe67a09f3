"""``Broker``: the handle a test gets of a broker."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Literal

from ..core.aio import Twin
from ..core.errors import ContractError
from ..core.journal import Found
from ..core.timeparse import Duration, duration_us, monotonic
from ..handle import Context, Handle
from .engine.engine import Engine
from .engine.log import PartitionLog
from .errors import as_misuse
from .loading import (
    Headers,
    checked,
    header_list,
    messages_in,
    text,
    timestamp_ms,
)
from .matching import (
    Expectation,
    Sought,
    failure,
    shown_call,
)
from .model import (
    INT64_MAX,
    Message,
    Record,
    TopicPartition,
    TopicPartitionOffset,
)
from .routes import BrokerApp
from .settings import (
    Limits,
    Settings,
    comparable,
    one_of,
    string,
    strings,
    whole,
)
from .views import (
    GroupView,
    TopicView,
    group_view,
    topic_view,
)

__all__ = ["Broker"]

_LONGEST_SLEEP = 3600.0
"""Seconds that every platform can sleep."""


class Broker(Handle):
    """A fake log broker with topics, partitions and consumer groups, behind its REST interface.

    ``topics`` maps names to partition counts, or to mappings of what ``create_topic`` takes;
    ``retention`` and ``retention_bytes`` (of each partition) are the topics' defaults, None for ever.
    The other keywords choose what nobody documents; each
    is explained in ``settings.Settings``, with durations here in the project's usual forms. ``limits``
    is a plan (``"free"``, ``"payg"``, ``"pro"``, ``"pro-5k"``) or a ``Limits``. ``username`` and
    ``password`` replace the generated credentials. ``engine`` is the address of a real cluster
    (``"kafka://host:port,…"``, see ``kafka_engine``) to use instead of the in-memory engine, and
    ``isolation`` this handle's share of it: names with a ``"prefix"``, or ``"none"``: all there is.
    """

    service: ClassVar[str] = "broker"
    fixture: ClassVar[str] = "broker"

    engine: Engine

    def __init__(
        self,
        context: Context,
        *,
        name: str | None = None,
        topics: Mapping[str, int | Mapping[str, Any]] | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        username: str = "fakecloud",
        password: str | None = None,
        limits: str | Limits | None = None,
        header_prefixes: Sequence[str] = ("Kafka-", "Broker-"),
        idle_close: Duration | None = "300s",
        session_timeout: Duration = "120s",
        heartbeats: Literal["background", "consume"] = "background",
        join_delay: Duration = 0,
        offset_retention: Duration | None = "7d",
        max_timeout: Duration = "600s",
        max_poll_records: int = 500,
        max_partition_bytes: int = 1024 * 1024,
        interleave: Literal["rotate", "random"] = "rotate",
        fetch_single_topic: bool = False,
        fetch_beyond_end: Literal["error", "wait"] = "error",
        delete_leaves: bool = True,
        resubscribe: Literal["rebalance", "ignore"] = "rebalance",
        concurrent_consume: Literal["wait", "error"] = "wait",
        instance_limit: Literal["cluster", "group"] | None = "cluster",
        commit_by_unknown: Literal["error", "store"] = "error",
        unknown_group: Literal["error", "uncommitted"] = "error",
        never_committed: int = -1,
        no_such_time: int = -1,
        keyless: Literal["rotate", "random"] = "rotate",
        empty_key: Literal["key", "absent"] = "key",
        batches: Literal["atomic", "in order"] = "atomic",
        coerce_scalars: bool = False,
        webhook_answer: Literal["list", "object"] = "list",
        webhook_drop: Sequence[str] = (),
        webhook_keep: Sequence[str] = (),
        errors: Mapping[str, int | tuple[int, str]] | None = None,
        engine: str | None = None,
        isolation: Literal["prefix", "none"] = "prefix",
    ) -> None:
        string("name", name, optional=True)
        _credential("username", username)
        if ":" in username:
            raise ContractError(f"username={username!r}: HTTP Basic allows no colon in it")
        _credential("password", password, optional=True)
        one_of("isolation", isolation, "prefix", "none")
        if isinstance(limits, str):
            limits = Limits.preset(limits)
        if topics is not None and not isinstance(topics, Mapping):
            raise ContractError(
                f"topics={topics!r} is not understood: give a mapping from name to partition count, "
                "such as {'orders': 3}"
            )
        settings = Settings(
            header_prefixes=header_prefixes,
            idle_close_ms=None if idle_close is None else _ms(idle_close),
            session_timeout_ms=_ms(session_timeout),
            heartbeats=heartbeats,
            join_delay_ms=_ms(join_delay),
            offset_retention_ms=None if offset_retention is None else _ms(offset_retention),
            max_timeout_ms=_ms(max_timeout),
            max_poll_records=max_poll_records,
            max_partition_bytes=max_partition_bytes,
            interleave=interleave,
            fetch_single_topic=fetch_single_topic,
            fetch_beyond_end=fetch_beyond_end,
            delete_leaves=delete_leaves,
            resubscribe=resubscribe,
            concurrent_consume=concurrent_consume,
            instance_limit=instance_limit,
            commit_by_unknown=commit_by_unknown,
            unknown_group=unknown_group,
            never_committed=never_committed,
            no_such_time=no_such_time,
            keyless=keyless,
            empty_key=empty_key,
            batches=batches,
            coerce_scalars=coerce_scalars,
            webhook_answer=webhook_answer,
            webhook_drop=webhook_drop,
            webhook_keep=webhook_keep,
            errors={} if errors is None else errors,
            limits=_retaining(Limits() if limits is None else limits, retention, retention_bytes),
        )
        self.username = username
        name = context.name_for(self.fixture, name)
        self.engine = self._make_engine(context, settings, name, engine, isolation)
        for topic, options in (topics or {}).items():
            self._add_topic(topic, **_topic_options(topic, options))
        super().__init__(
            context,
            BrokerApp(self.engine, lambda: (self.username, self.token)),
            name=name,
        )
        if password is not None:
            self.token = password
        self.engine.tell_to(self.journal.add_event)
        self._mount.on_close.append(self.engine.close)
        self._mount.on_reset.append(self.engine.interrupt)

    def __new__(cls, *args: Any, engine: str | None = None, **settings: Any) -> Broker:
        """A handle for the engine that is asked for: a real cluster cannot do all of it."""
        if engine is None or cls is not Broker:
            return super().__new__(cls)
        string("engine", engine, optional=True)
        try:
            from .kafka.handle import KafkaBroker
        except ModuleNotFoundError as error:
            raise ContractError(
                f"engine={engine.partition('://')[0]!r} needs confluent-kafka: "
                "pip install 'pytest-fakecloud[kafka]'"
            ) from error
        return super().__new__(KafkaBroker)

    def _make_engine(
        self, context: Context, settings: Settings, name: str, url: str | None, isolation: str
    ) -> Engine:
        return Engine(context.clock, context.ids, settings, name=name)

    # -- identity --------------------------------------------------------------------------------

    @property
    def password(self) -> str:
        """The password of the REST user; ``rotate_token()`` replaces it."""
        return self.token

    @property
    def headers(self) -> dict[str, str]:
        """The headers that let a request in."""
        return {"Authorization": _basic(self.username, self.token)}

    def env_variables(self) -> dict[str, str]:
        """The variables the vendor's own client tests read; the client itself reads none."""
        return {
            "UPSTASH_KAFKA_REST_URL": self.url,
            "UPSTASH_KAFKA_REST_USERNAME": self.username,
            "UPSTASH_KAFKA_REST_PASSWORD": self.token,
        }

    def make_client(self, **options: Any) -> Any:
        """An ``httpx.Client`` with base address and credentials: the vendor has no Python client."""
        import httpx

        return httpx.Client(base_url=self.url, headers=self.headers, **options)

    def make_async_client(self, **options: Any) -> Any:
        """An ``httpx.AsyncClient`` with base address and credentials."""
        import httpx

        return httpx.AsyncClient(base_url=self.url, headers=self.headers, **options)

    @property
    def aio(self) -> Twin:
        """Awaitable twins: ``await broker.aio.wait_for_record(...)``."""
        return Twin(self, ["wait_for_record"])

    # -- arranging -------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        max_message_bytes: int | None = None,
        first_offset: int = 0,
    ) -> TopicView:
        """Create a topic; ``first_offset`` is where the log of each partition begins.

        What is left out comes from the broker's own settings. Raises ``ContractError`` for a bad
        name, an existing topic, and counts out of bounds.
        """
        self._add_topic(
            topic, partitions, retention, retention_bytes, max_message_bytes, first_offset
        )
        return self.topic(topic)

    def _add_topic(
        self,
        topic: str,
        partitions: int = 1,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        max_message_bytes: int | None = None,
        first_offset: int = 0,
    ) -> None:
        self.engine.create_topic(
            topic,
            partitions,
            retention_ms=None if retention is None else _ms(retention),
            retention_bytes=retention_bytes,
            max_message_bytes=max_message_bytes,
            first_offset=first_offset,
        )

    def add_partitions(self, topic: str, count: int = 1) -> int:
        """Give a topic that many more partitions; its count after. Its groups rebalance."""
        string("topic", topic)
        self.clock.settle()
        with as_misuse():
            return self.engine.add_partitions(topic, count)

    def set_retention(
        self,
        topic: str,
        retention: Duration | None = None,
        *,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace how long, and how many bytes of each partition, a topic keeps; None: for ever."""
        string("topic", topic)
        with as_misuse():
            self.engine.set_retention(
                topic,
                retention_ms=None if retention is None else _ms(retention),
                retention_bytes=retention_bytes,
            )

    def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: str | None = None,
        partition: int | None = None,
        timestamp: int | datetime | str | None = None,
        headers: Headers | None = None,
    ) -> Any:
        """Put a record into a topic, or several: a list as value is a batch.

        Values that are no text are stored as JSON; items of a batch may be ``Message``. ``timestamp``
        is milliseconds or an instant. Returns ``Metadata``, a list of them for a batch. Records a
        tester puts in are no answer to ``assert_produced``.
        """
        self.clock.settle()
        many = isinstance(value, list)
        like = checked(
            Message(topic, "", key, partition, timestamp_ms(timestamp), header_list(headers))
        )
        messages = [
            checked(item) if isinstance(item, Message) else like._replace(value=text(item))
            for item in (value if many else [value])
        ]
        with as_misuse():
            places = self.engine.produce(messages, by_client=False)
        return places if many else places[0]

    def load(self, data: Any) -> None:
        """Put records in: ``{topic: [value or message, ...]}``, messages with a topic, or JSON lines.

        A message is a mapping with ``value`` and any of ``topic``, ``key``, ``partition``,
        ``timestamp`` and ``headers``. A ``Path``, or text, holds one message as JSON on each line.
        Topics that do not exist are created, with the partitions they need. All of it is loaded or,
        with an error, nothing.
        """
        messages = list(messages_in(data))
        needed: dict[str, int] = {}
        for message in messages:
            needed[message.topic] = max(needed.get(message.topic, 1), (message.partition or 0) + 1)
        if isinstance(data, Mapping):
            needed = {**dict.fromkeys(data, 1), **needed}
        with as_misuse():
            self.engine.load(needed, messages)

    def delete_records(self, topic: str, *, before: int, partition: int | None = None) -> int:
        """Forget the records below an offset, in one partition or in all; how many were forgotten."""
        string("topic", topic)
        whole("before", before, 0)
        whole("partition", partition, 0, optional=True)
        with as_misuse():
            return self.engine.delete_records(topic, partition, before)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set a group's committed offset, whoever owns the partition; creates the group.

        It stands until a client commits, or auto commit is on and more is delivered.
        """
        string("group", group)
        string("topic", topic)
        whole("partition", partition, 0)
        whole("offset", offset, 0, INT64_MAX)
        self.clock.settle()
        with as_misuse(), self.engine.locked() as now:
            self.engine.table.partition(topic, partition, now)
            self.engine.commits.set_by_test(
                group, TopicPartitionOffset(topic, partition, offset), now
            )

    # -- making it happen ------------------------------------------------------------------------

    def crash(self, group: str, instance: str) -> None:
        """Let an instance vanish: no commit, no leave; its partitions wait for its session's end."""
        _check_instance(group, instance)
        self.clock.settle()
        with as_misuse(), self.engine.locked() as now:
            self.engine.groups.crash(group, instance, now)

    def expire(self, group: str, instance: str) -> None:
        """End an instance's session now: its partitions go to others, and a late commit fails."""
        _check_instance(group, instance)
        self.clock.settle()
        with as_misuse(), self.engine.locked() as now:
            self.engine.groups.expire(group, instance, now)

    def rebalance(self, group: str) -> GroupView:
        """Let a group hand out its partitions anew; positions return to the committed offsets.

        Members with auto commit on commit first what they were given, as in every rebalance.
        """
        string("group", group)
        self.clock.settle()
        with self.engine.locked() as now:
            found = self.engine.table.groups.get(group)
            if found is None:
                raise _no_group(group, self.engine)
            self.engine.groups.rebalance(found, "the test asked for it", now)
        return self.group(group)

    def join(self, group: str, instance: str, topics: Sequence[str]) -> GroupView:
        """Let a phantom instance join that never consumes by itself; it idles like any other."""
        wanted = self._joining(group, instance, topics)
        self.clock.settle()
        with as_misuse(), self.engine.locked() as now:
            at, member = self.engine.groups.enter(group, instance, wanted, {}, now)
            member.consuming += 1
            self.engine.groups.finish(at, member, None, now)
        return self.group(group)

    @staticmethod
    def _joining(group: str, instance: str, topics: Sequence[str]) -> tuple[str, ...]:
        _check_instance(group, instance)
        wanted = strings("topics", topics)
        if not wanted:
            raise ContractError("topics is empty: an instance joins to read at least one")
        return wanted

    def leave(self, group: str, instance: str) -> GroupView:
        """Let an instance leave its group, as delete-consumer does."""
        _check_instance(group, instance)
        self.clock.settle()
        with as_misuse():
            self.engine.delete_consumer(group, instance)
        return self.group(group)

    def redeliver(
        self, group: str, last: int = 1, *, topic: str | None = None, partition: int | None = None
    ) -> Found[Record]:
        """Deliver a group's last records again, as if their commits had been lost.

        ``topic`` and ``partition`` narrow what counts. Returns the records that will come again.
        """
        self.clock.settle()
        string("group", group)
        string("topic", topic, optional=True)
        whole("redeliver's last", last, 1)
        whole("partition", partition, 0, optional=True)
        with as_misuse(), self.engine.locked() as now:
            found = self.engine.table.groups.get(group)
            if found is None:
                raise _no_group(group, self.engine)
            if topic is not None:
                self.engine.table.partition(topic, partition or 0, now)
            before = {tp: after for tp, _, after in found.deliveries}
            moved = self.engine.commits.redeliver(
                found,
                last,
                lambda tp: topic in (None, tp.topic) and partition in (None, tp.partition),
                now,
            )
            records: Found[Record] = Found()
            for name, number, offset in moved:
                log = self.engine.table.partition(name, number, now)
                upto = before[TopicPartition(name, number)]
                records += [record for record in log.read(offset) if record.offset < upto]
        return records

    @contextmanager
    def reorder(self) -> Iterator[None]:
        """Within the block, answers mix the records of different partitions in seeded random order.

        Order within each partition is kept, as everywhere.
        """
        delivery = self.engine.delivery
        before, delivery.random_interleave = delivery.random_interleave, True
        try:
            yield
        finally:
            delivery.random_interleave = before

    def partial_produce(self, keep: int, *, times: int = 1) -> None:
        """Make the next client batch larger than ``keep`` fail with 503 after that many messages."""
        whole("partial_produce's keep", keep, 0)
        whole("partial_produce's times", times, 1, 1_000_000)
        self.engine.fail_batches(keep, times)

    # -- looking ---------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """Partition counts by topic name."""
        return self.engine.topics()

    def topic(self, name: str) -> TopicView:
        """A topic with its records and the ends of its logs; ``ContractError`` for an unknown one."""
        string("topic", name)
        self.clock.settle()
        with as_misuse(), self.engine.locked() as now:
            return topic_view(self.engine.table.topic(name, now))

    def records(self, topic: str, **where: object) -> Found[Record]:
        """The records of a topic in (partition, offset) order, filtered by their fields.

        A function as a field's value is a predicate. Raises ``ContractError`` for a field that no
        record has, and for a value that it can never have.
        """
        for field, wanted in where.items():
            one_of("a field of records()", field, *Record._fields)
            if field != "headers":
                numeric = field in ("partition", "offset", "timestamp")
                comparable(field, wanted, int if numeric else str)
        records = self.topic(topic).records
        return records.where(**where) if where else records

    def group(self, name: str) -> GroupView:
        """A group with its members, assignment, generation, committed offsets, positions and lag."""
        string("group", name)
        self.clock.settle()
        table = self.engine.table
        with self.engine.locked():
            return group_view(name, table.groups.get(name), table.topics)

    def groups(self) -> list[str]:
        """The names of the groups that have members or committed offsets."""
        self.clock.settle()
        with self.engine.locked():
            return sorted(self.engine.table.groups)

    # -- asserting and waiting -------------------------------------------------------------------

    def assert_produced(
        self,
        topic: str,
        value: Any = None,
        *,
        key: str | Callable[[str], object] | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        times: int | None = None,
    ) -> Found[Record]:
        """The matching records that clients produced; fails unless there is one, or ``times``.

        ``value`` is text, a predicate on the text, or anything else to compare with the value as
        JSON; ``headers`` must be among the record's. What the tester put in does not count. A
        predicate that raises does not hold; one that raises for every record fails the assertion.
        """
        __tracebackhide__ = True
        string("topic", topic)
        whole("times", times, 0, optional=True)
        self.clock.settle()
        expected = Expectation(value, key, headers, partition)
        records, own = self._client_records(topic)
        candidates = [(record, expected.why_not(record)) for record in records]
        matched = Found(record for record, why in candidates if not why)
        unclear = expected.unclear
        if not unclear and ((times is None and matched) or len(matched) == times):
            return matched
        count = "at least one record" if times is None else f"{times} record(s)"
        note = f"{own} record(s) the test itself put in do not count" if own else ""
        if not records:
            note = "; ".join(filter(None, ["no client has produced to it", note]))
        if unclear:
            note = "; ".join(filter(None, [unclear, note]))
        raise AssertionError(
            failure(
                f"expected {count} in topic {topic!r}{expected}, found {len(matched)} "
                f"among {len(records)}",
                candidates,
                matched,
                "\n  ".join(filter(None, [note, *self._refused(len(matched), times)])),
                expected.distance,
            )
        )

    def _refused(self, found: int, times: int | None) -> list[str]:
        """The last produce calls that came to nothing, where records are missing."""
        if times is not None and found >= times:
            return []
        refused = [
            call
            for call in self.journal.calls()
            if call.path.startswith(("/produce", "/webhook"))
            and (not call.reached or (call.status or 0) >= 400)
        ]
        return [f"came to nothing: {shown_call(call)}" for call in refused[-5:]]

    def _client_records(self, topic: str) -> tuple[Sequence[Record], int]:
        """What clients produced to a topic, and how many records the tester put there."""
        with as_misuse(), self.engine.locked() as now:
            logs = self.engine.table.topic(topic, now).logs
            records = [record for log in logs for record in log.records(by_client=True)]
            return records, sum(len(log.records(by_client=False)) for log in logs)

    def _committed_now(self, group: str) -> Mapping[TopicPartition, int] | None:
        """What a group has committed; None when there is no such group."""
        with self.engine.locked():
            found = self.engine.table.groups.get(group)
            return None if found is None else dict(found.committed)

    def assert_committed(
        self,
        group: str,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        *,
        times: int | None = None,
    ) -> Found[TopicPartitionOffset]:
        """The group's committed offsets that match; fails when none does.

        With ``times``, counts the commits that were made (by clients, or automatically) instead of
        looking at what is committed now.
        """
        __tracebackhide__ = True
        string("group", group)
        comparable("topic", topic, str)
        comparable("partition", partition, int)
        comparable("offset", offset, int)
        whole("times", times, 0, optional=True)
        self.clock.settle()
        found = self._committed_now(group)
        now = [TopicPartitionOffset(*tp, at) for tp, at in (found or {}).items()]
        made = [
            TopicPartitionOffset(*offset)
            for event in self.journal.events(group=group)
            if event.kind in ("commit", "auto commit")
            for offset in event.data["offsets"]
        ]
        wanted = {"topic": topic, "partition": partition, "offset": offset}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        among = now if times is None else made
        matched = Found(among).where(**wanted)
        if (times is None and matched) or len(matched) == times:
            return matched
        asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items()) or "anything"
        count = "a committed offset" if times is None else f"{times} commit(s)"
        lines = [f"expected {count} of group {group!r} with {asked}, found {len(matched)}"]
        for at in among[-10:]:
            why = [
                f"{n} is {getattr(at, n)!r}, not {v!r}"
                for n, v in wanted.items()
                if not Found([at]).where(**{n: v})
            ]
            lines.append(
                f"  {'not' if why else 'matched'} {at.topic}-{at.partition}={at.offset}: "
                f"{'; '.join(why)}".rstrip(": ")
            )
        if not among:
            known = found is not None
            lines.append(
                f"  {'the group has never committed' if known else 'there is no such group'}"
            )
        raise AssertionError("\n".join(lines))

    def assert_caught_up(self, group: str) -> GroupView:
        """The group, when it has committed all there is; fails with the lag of each partition."""
        __tracebackhide__ = True
        view = self.group(group)
        if view.state == "Dead":
            raise AssertionError(
                f"expected group {group!r} to be caught up, but there is no such group; "
                f"known groups: {', '.join(self.groups()) or 'none'}"
            )
        if not view.lag:
            raise AssertionError(
                f"expected group {group!r} to be caught up, but it has neither members nor committed "
                "offsets: there is nothing it reads"
            )
        if view.total_lag == 0:
            return view
        owners = {tp: name for name, owned in view.assignment.items() for tp in owned}
        lines = [
            f"expected group {group!r} to be caught up, it is {view.total_lag} record(s) behind"
        ]
        lines += [
            f"  {tp.topic}-{tp.partition}: committed {view.committed.get(tp, 'nothing')}, "
            f"position {view.position.get(tp, 'none')}, {lag} behind, "
            f"owned by {owners.get(tp, 'nobody')}"
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
    ) -> Record:
        """The first record of a topic that satisfies the predicate, now or as soon as one comes.

        ``timeout`` is real seconds; ``AssertionError`` listing what is there when it is over. A
        predicate that raises does not hold.
        """
        __tracebackhide__ = True
        sought = Sought(topic, predicate, timeout)
        signal = self.clock.signal()
        watched: list[PartitionLog] = []
        until = monotonic() + timeout
        self.engine.waiting.append(signal)
        try:
            while True:
                version = signal.version
                with as_misuse(), self.engine.locked() as now:
                    # Partitions may be new, and after a restore all are.
                    watched = list(self.engine.table.topic(topic, now).logs)
                    for log in watched:
                        log.watchers.add(signal)
                records = self.records(topic)
                found = sought.among(records)
                if found is not None:
                    return found
                left = until - monotonic()
                if left <= 0:
                    raise AssertionError(sought.missing(records))
                signal.sleep(version, min(left, _LONGEST_SLEEP))
        finally:
            self.engine.waiting.remove(signal)
            with self.engine.locked():
                for log in watched:
                    log.watchers.discard(signal)


def _check_instance(group: object, instance: object) -> None:
    string("group", group)
    string("instance", instance)


def _credential(name: str, value: str | None, *, optional: bool = False) -> None:
    string(name, value, optional=optional)
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise ContractError(f"{name}={value!r}: no client can send half a surrogate pair") from None


def _no_group(group: str, engine: Engine) -> ContractError:
    known = ", ".join(sorted(engine.table.groups)) or "none"
    return ContractError(f"there is no group {group!r}; known groups: {known}")


def _ms(duration: Duration) -> int:
    return duration_us(duration) // 1000


def _retaining(limits: Limits, retention: Duration | None, retention_bytes: int | None) -> Limits:
    if not isinstance(limits, Limits):
        return limits  # for the settings to refuse
    if retention is not None:
        limits = replace(limits, retention_ms=_ms(retention))
    if retention_bytes is not None:
        whole("retention_bytes", retention_bytes, 0)
        limits = replace(limits, retention_bytes=retention_bytes)
    return limits


def _topic_options(topic: str, options: object) -> dict[str, Any]:
    known = ("partitions", "retention", "retention_bytes", "max_message_bytes", "first_offset")
    if isinstance(options, int) and not isinstance(options, bool):
        return {"partitions": options}
    if not isinstance(options, Mapping):
        raise ContractError(
            f"topic {topic!r} is given as {options!r}: give its partition count, or a mapping of "
            f"{', '.join(known)}"
        )
    for option in options:
        one_of(f"an option of topic {topic!r}", option, *known)
    return dict(options)


def _basic(username: str, password: str) -> str:
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()
