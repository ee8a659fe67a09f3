"""The ``Broker`` class, the type of the ``broker`` fixture."""

from __future__ import annotations

import threading
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack, overload

from ..cloud.actions import action, look
from ..cloud.fake import Aio
from ..core.calls import Call
from ..core.clock import in_thread
from ..core.errors import ContractError, brief, counted, importing, unknown_name
from ..core.field_types import ITEM, OneOf
from ..core.journal import Results, check_predicate, expect, results_of
from ..core.matching import Condition, Field, Query
from ..core.settings import choice, whole
from ..core.timers import Duration, weakly
from .engine.engine import MemoryEngine
from .errors import AsMisuse, string, strings
from .model import (
    AUTO_OFFSET_RESETS,
    INT64_MAX,
    OFFSET_FIELDS,
    RECORD_FIELDS,
    ConsumeRequest,
    Headers,
    Loadable,
    Metadata,
    ProducerRecord,
    Record,
    TopicConfig,
    TopicPartitionOffset,
    checked_message,
    header_list,
    messages_in,
    milliseconds,
    record_fields,
    stored_value,
    timestamp_ms,
)
from .routes import BrokerApp
from .settings import BrokerConfig, topic_config
from .views import GROUP_FIELDS, TOPIC_FIELDS, GroupView, TopicView, description_of

if TYPE_CHECKING:
    import httpx

    from .._typing.broker import BrokerFake as Fake
    from .._typing.broker import BrokerSettings as BrokerSettings
    from .._typing.broker import ListedFields, RecordFields
    from ..http.hub import Mount
    from .faults import BrokerFaults
    from .real_kafka.engine import KafkaEngine
else:
    # For type checkers, ``_typing/broker.pyi`` declares this base class with the keywords of filters.
    from ..cloud.fake import Fake
    from ..core.settings import keywords_of

    BrokerSettings = keywords_of(BrokerConfig, "``Cloud.broker()`` and of the marker")

BrokerEngine: TypeAlias = "MemoryEngine | KafkaEngine"
"""The in-memory engine or the engine on a real cluster, which have the same methods.

Timeouts are in milliseconds and limit how long a call waits. Every method can raise
``BrokerError``. An operation that an engine does not support raises ``ContractError``.
"""
_WHOLE_RECORD = Field(ITEM, lambda record: record, bare=True)


class AioBroker(Aio["httpx.AsyncClient"]):
    """The asynchronous forms of a broker's methods, for asyncio and trio, with the same names."""

    _fake: Broker

    def client(self, **options: Any) -> httpx.AsyncClient:
        """Return an ``httpx.AsyncClient`` with the fake's URL and credentials.

        ``options`` are passed to it. The test closes it, because that must be awaited.
        """
        return super().client(**options)

    async def wait_for_record(
        self,
        topic: str,
        predicate: Callable[[Record], object] | None = None,
        *,
        timeout: float = 5.0,
        **where: Unpack[ListedFields],
    ) -> Record:
        """Awaitable version of ``Broker.wait_for_record()``."""
        cancelled = threading.Event()
        try:
            return await in_thread(
                self._fake._wait_for_record, topic, predicate, timeout, where, cancelled
            )
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            cancelled.set()


_AS_MISUSE = AsMisuse()


class Broker(Fake):
    """A fake of the Upstash Kafka REST API, with topics, partitions and consumer groups.

    ``settings`` are the keyword arguments in ``BrokerSettings``.
    """

    service: ClassVar[str] = "broker"
    fixture: ClassVar[str] = "broker"

    _config_class = BrokerConfig
    _config: BrokerConfig
    _app: BrokerApp
    _engine: BrokerEngine
    faults: BrokerFaults

    def _make_app(self) -> BrokerApp:
        config = self._config
        if config.engine is None:
            self._engine = MemoryEngine(self._timekeeper, self._context.ids, config, self.name)
        else:
            with importing(f"engine={config.engine.partition('://')[0]!r}", extra="kafka"):
                from .real_kafka.engine import KafkaEngine
            self._engine = KafkaEngine(self._timekeeper, config, config.engine)
        self._exits.callback(self._engine.close)
        for topic, options in (config.topics or {}).items():
            self._engine.topics.create(topic, topic_config(topic, options))
        # The journal has no events of these topics.
        self._engine.set_listener(weakly(self._recorder.add_event))
        return BrokerApp(self._instruments, self._engine, config.username, self.faults)

    def _add_missing(self) -> list[str]:
        """Create the missing ones of the topics and partitions of ``topics``."""
        contradicted = []
        for topic, options in (self._config.topics or {}).items():
            config, count = topic_config(topic, options), self._engine.topics.counts().get(topic)
            if count is None:
                self._engine.topics.create(topic, config)
            elif count < config.partitions:
                self._engine.topics.add_partitions(topic, config.partitions - count)
            elif count > config.partitions:
                contradicted.append(
                    f"topics: {topic!r} has {count} partitions already, so it cannot have "
                    f"{config.partitions}"
                )
        return contradicted

    def _first_token(self) -> str:
        return self._config.password or super()._first_token()

    def _add_mount(self, mount: Mount) -> None:
        super()._add_mount(mount)
        mount.on_reset.append(self._engine.interrupt)

    def _new_faults(self) -> BrokerFaults:
        from .faults import BrokerFaults

        return BrokerFaults(self._context.ids.stream(self.name, "faults"), self._timekeeper, self)

    # -- credentials and clients -----------------------------------------------------------------

    @property
    def username(self) -> str:
        """The name of the REST user."""
        return self._app.username

    @username.setter
    def username(self, name: str) -> None:
        self._app.username = name

    @property
    def password(self) -> str:
        """The password of the REST user; ``rotate_token()`` replaces it."""
        return self.token

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers with the credentials, for requests to the broker."""
        login = f"{self.username}:{self.token}".encode()
        credentials = b2a_base64(login, newline=False).decode()
        return {"Authorization": f"Basic {credentials}"}

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that the vendor's client tests read; the client reads none."""
        return {
            "UPSTASH_KAFKA_REST_URL": self.url,
            "UPSTASH_KAFKA_REST_USERNAME": self.username,
            "UPSTASH_KAFKA_REST_PASSWORD": self.token,
        }

    def client(self, **options: Any) -> httpx.Client:
        """Return an ``httpx.Client`` with the fake's URL and credentials, because the vendor has no
        Python client. ``options`` are passed to it. Closing the fake closes the client.
        """
        client: httpx.Client = self._official(partial(self._make, "Client"), options, close="close")
        return client

    def _make(self, kind: Literal["Client", "AsyncClient"], **options: Any) -> Any:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise ContractError(
                f"{self.name} has no official client, so this returns an httpx.{kind}, but httpx is "
                "not installed: pip install httpx"
            ) from error
        headers = httpx.Headers(self.headers)
        headers.update(options.pop("headers", None))
        return getattr(httpx, kind)(base_url=self.url, headers=headers, **options)

    @property
    def aio(self) -> AioBroker:
        """The asynchronous client, and awaitable versions of the methods that wait."""
        return AioBroker(self, partial(self._make, "AsyncClient"))

    # -- setup -----------------------------------------------------------------------------------

    @action
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
        """Create a topic, and return it. Each of its partitions starts at ``first_offset``.

        Omitted arguments default to the broker's settings. Raises ``ContractError`` for an invalid
        name, an existing topic, and numbers out of range.
        """
        with self._settled():
            config = TopicConfig(
                partitions,
                milliseconds(retention),
                retention_bytes,
                max_message_bytes,
                first_offset,
            )
            self._engine.topics.create(topic, config)
        return self.topic(topic)

    @overload
    def produce(  # type: ignore[overload-overlap]
        self,
        topic: str,
        value: list[Any],
        *,
        key: str | None = None,
        partition: int | None = None,
        timestamp: int | datetime | str | None = None,
        headers: Headers | None = None,
    ) -> list[Metadata]: ...

    @overload
    def produce(
        self,
        topic: str,
        value: object = None,
        *,
        key: str | None = None,
        partition: int | None = None,
        timestamp: int | datetime | str | None = None,
        headers: Headers | None = None,
    ) -> Metadata: ...

    @action
    def produce(
        self,
        topic: str,
        value: object = None,
        *,
        key: str | None = None,
        partition: int | None = None,
        timestamp: int | datetime | str | None = None,
        headers: Headers | None = None,
    ) -> Metadata | list[Metadata]:
        """Produce one record to a topic or, if the value is a list, a batch of records.

        Values that are not strings are stored as JSON, even a mapping that is a message for
        ``load()``; items of a batch can be ``ProducerRecord``.
        ``timestamp`` is in milliseconds or an ISO time. Returns the record's ``topic``,
        ``partition``, ``offset`` and ``timestamp`` (in milliseconds); for a batch, a list of them.
        ``assert_produced()`` does not count these records.
        """
        like = checked_message(
            ProducerRecord(topic, "", key, partition, timestamp_ms(timestamp), header_list(headers))
        )
        messages = [
            checked_message(item)
            if isinstance(item, ProducerRecord)
            else ProducerRecord(topic, stored_value(item), *like[2:])
            for item in (value if isinstance(value, list) else [value])
        ]
        with self._settled():
            produced = self._engine.records.produce(messages, by_client=False)
        return produced if isinstance(value, list) else produced[0]

    @action
    def load(self, data: Loadable) -> None:
        """Load records from a mapping of topics, a list of messages, or JSON lines.

        A mapping has the form ``{topic: [value or message, ...]}``. A message is a mapping with
        ``value`` and any of ``topic``, ``key``, ``partition``, ``timestamp`` and ``headers``; any
        other item below a topic is a value, which is stored as JSON unless it is a string. A file
        given as ``Path``, or a string, contains one message as JSON per line. Missing topics are
        created with the partitions that they need. If any record is invalid, none are loaded.
        """
        if isinstance(data, PathLike):
            data = _text_of(data)
        messages = list(messages_in(data))
        needed = dict.fromkeys(data, 1) if isinstance(data, Mapping) else {}
        for message in messages:
            needed[message.topic] = max(needed.get(message.topic, 1), (message.partition or 0) + 1)
        with self._settled():
            self._engine.load(needed, messages)

    @action
    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set a group's committed offset, even if an instance owns the partition.

        Creates the group if necessary. Clients' later commits replace the offset, and so do
        automatic commits of later deliveries.
        """
        whole(0).read("partition", partition)
        whole(0, INT64_MAX).read("offset", offset)
        with self._settled(group=group, topic=topic):
            self._engine.groups.set_committed(group, TopicPartitionOffset(topic, partition, offset))

    @action
    def join(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        *,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
    ) -> GroupView:
        """Add an instance to a group without consuming, and return the group.

        ``auto_offset_reset`` determines where the instance starts in a partition without a
        committed offset, like the consume request's header of that name. The instance is closed
        when it has been idle for too long, like any other.
        """
        wanted = strings("topics", topics)
        if not wanted:
            raise ContractError("topics is empty: pass at least one topic for the instance to read")
        string("auto_offset_reset", auto_offset_reset)
        choice(*AUTO_OFFSET_RESETS).read("auto_offset_reset", auto_offset_reset)
        request = ConsumeRequest(group, instance, wanted, {"auto-offset-reset": auto_offset_reset})
        with self._settled(group=group, instance=instance):
            self._engine.groups.join(request)
        return self.group(group)

    # -- topics, groups and records --------------------------------------------------------------

    def _settled(self, **names: str) -> AsMisuse:
        """Fire due timers, and return a block in which errors of the engine become ``ContractError``.

        Raises ``ContractError`` if one of the ``names`` that the test passed is not a string.
        """
        for argument, name in names.items():
            string(argument, name)
        self._timekeeper.settle()
        return _AS_MISUSE

    @look
    def topics(self) -> Results[TopicView]:
        """Return the topics."""
        views = (TopicView(self, name) for name in self._engine.topics.counts())
        return results_of(views, TOPIC_FIELDS, "topic")

    @look
    def topic(self, name: str) -> TopicView:
        """Return a topic with its records and offsets; raise ``ContractError`` if it is unknown."""
        with self._settled(topic=name):
            self._engine.topics.check(name)
        return TopicView(self, name)

    @look
    def records(self, topic: str, **where: Unpack[ListedFields]) -> Results[Record]:
        """Return the records of a topic in (partition, offset) order, optionally filtered.

        ``where`` are conditions on fields of the record, such as a value or a function of the
        field's value. Raises ``ContractError`` for an unknown topic, and for a condition that can
        never be true.
        """
        string("topic", topic)
        records = TopicView(self, topic).records
        return records.where(**where) if where else records

    @look
    def groups(self) -> Results[GroupView]:
        """Return the groups that have members or committed offsets."""
        self._timekeeper.settle()
        views = (GroupView(self, name) for name in self._engine.groups.names())
        return results_of(views, GROUP_FIELDS, "group")

    @look
    def group(self, name: str) -> GroupView:
        """Return a group with its members, partitions, committed offsets, positions and lag.

        Raises ``ContractError`` if it is unknown.
        """
        with self._settled(group=name):
            self._engine.groups.describe(name)
        return GroupView(self, name)

    # -- assertions ------------------------------------------------------------------------------

    @look
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
            by_clients, by_test = self._engine.records.produced(topic)
        query = Query(_given(wanted), self._fields_of(topic), "record")
        return expect(
            f"a record in topic {topic!r}",
            by_clients,
            query,
            times=times,
            show=_shown_record,
            not_counted=((record, "the test itself produced it") for record in by_test),
            notes=lambda count: self._rejected_calls() if count < (times or 1) else (),
            if_empty="no client has produced to it",
        )

    def _fields_of(self, topic: str) -> Mapping[str, Field]:
        count = self._engine.topics.counts().get(topic)
        # A cluster may not list a new topic immediately, so accept all partition numbers then.
        return RECORD_FIELDS if count is None else record_fields(count)

    @look
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

    @look
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
        with self._settled(group=group):
            if isinstance(topic, str) and "*" not in topic:
                self._engine.topics.check(topic)
        wanted = {"topic": topic, "partition": partition, "offset": offset}
        fields = {
            **OFFSET_FIELDS,
            "topic": Field(OneOf("topic", self._engine.topics.counts()), optional=False),
        }
        query = Query(_given(wanted), fields, "committed offset")
        exists = group in self._engine.groups.names()
        if times is None:
            committed = self.group(group).committed if exists else {}
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
            if_empty="the group has never committed" if exists else "there is no such group",
        )

    @look
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
        self._timekeeper.settle()
        groups = self._engine.groups.names()
        if group not in groups and not self.journal.events(group=group):
            raise ContractError(unknown_name("group", group, groups))
        self.assert_committed(group, topic, partition, offset, times=0)

    @look
    def assert_caught_up(self, group: str) -> GroupView:
        """Assert that a group has committed all records, and return the group."""
        __tracebackhide__ = True
        string("group", group)
        try:
            group_view = self.group(group)
        except ContractError as error:
            # The code under test may not have created the group yet.
            raise AssertionError(f"expected a group to be caught up, but {error}") from None
        view = description_of(group_view)
        if not view.lag:
            raise AssertionError(
                f"expected group {group!r} to be caught up, but it has neither members nor committed "
                "offsets, so it reads no topic"
            )
        if view.total_lag == 0:
            return group_view
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
        return self._wait_for_record(topic, predicate, timeout, where, threading.Event())

    def _wait_for_record(
        self,
        topic: str,
        predicate: Callable[[Record], object] | None,
        timeout: float,
        where: Mapping[str, object],
        cancelled: threading.Event,
    ) -> Record:
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

        def look() -> Record | None:
            if cancelled.is_set():
                raise ContractError("the task that waits for a record was cancelled")
            return next(filter(query, self.records(topic)), None)

        with AsMisuse():
            record = self._engine.records.wait_for(topic, look, timeout)
        if record is not None:
            return record
        # Check once more, because a record may have arrived at the last moment.
        return expect(
            f"a record in topic {topic!r} within {timeout} s",
            self.records(topic),
            query,
            show=_shown_record,
            if_empty="the topic has no records",
        )[0]


def _text_of(path: PathLike[str]) -> str:
    from ..cloud.files import DATA_BYTES, read_file  # Imported here, because few tests load a file.

    try:
        return read_file(path, DATA_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ContractError(f"{str(path)!r:.200} is not UTF-8: {error.reason}") from None


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
