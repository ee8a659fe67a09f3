"""``Broker``: the handle a test gets of a broker."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Unpack, cast, overload

from ..core.aio import Twin
from ..core.errors import ContractError
from ..core.found import Found
from ..core.timeparse import Duration, duration_us
from ..handle import Context, Handle
from .assertions import BrokerAssertions
from .engines import BrokerEngine, make_engine
from .errors import as_misuse, choice, string, strings, whole
from .loading import (
    Headers,
    ListedFields,
    Loadable,
    checked,
    header_list,
    messages_in,
    text,
    timestamp_ms,
)
from .model import (
    AUTO_OFFSET_RESETS,
    INT64_MAX,
    GroupView,
    Metadata,
    ProducerRecord,
    Record,
    TopicPartitionOffset,
    TopicView,
)
from .routes import BrokerApp
from .settings import BrokerConfig, BrokerSettings

if TYPE_CHECKING:
    import httpx


class AioBroker(Protocol):
    """What of a broker can be awaited, in asyncio and trio."""

    async def wait_for_record(
        self,
        topic: str,
        predicate: Callable[[Record], object] | None = None,
        *,
        timeout: float = 5.0,
        **where: Unpack[ListedFields],
    ) -> Record:
        """``Broker.wait_for_record``, awaitable."""
        ...


class Broker(BrokerAssertions, Handle):
    """A fake log broker with topics, partitions and consumer groups, behind its REST interface.

    ``settings`` are the keywords of ``BrokerSettings``; ``BrokerConfig`` explains each.
    """

    service: ClassVar[str] = "broker"
    fixture: ClassVar[str] = "broker"

    _settings = BrokerConfig

    _engine: BrokerEngine

    def __init__(
        self,
        context: Context,
        **settings: Unpack[BrokerSettings],
    ) -> None:
        config = self._configure(context, BrokerConfig, settings)
        self.username = config.username
        self._engine = make_engine(context.time, context.ids, config)
        for topic, options in (config.topics or {}).items():
            self._add_topic(topic, **_topic_options(topic, options))
        super().__init__(
            context, BrokerApp(self._engine, lambda: (self.username, self.token)), config
        )
        if config.password is not None:
            self.token = config.password
        self._engine.tell_to(self._recorder.add_event)
        self._mount.on_close.append(self._engine.close)
        self._mount.on_reset.append(self._engine.interrupt)

    # -- identity --------------------------------------------------------------------------------

    @property
    def password(self) -> str:
        """The password of the REST user; ``rotate_token()`` replaces it."""
        return self.token

    @property
    def headers(self) -> dict[str, str]:
        """The headers that let a request in."""
        return {"Authorization": _basic(self.username, self.token)}

    def _env_variables(self) -> dict[str, str]:
        """The variables the vendor's own client tests read; the client itself reads none."""
        return {
            "UPSTASH_KAFKA_REST_URL": self.url,
            "UPSTASH_KAFKA_REST_USERNAME": self.username,
            "UPSTASH_KAFKA_REST_PASSWORD": self.token,
        }

    def client(self, **options: Any) -> httpx.Client:
        """Make an ``httpx.Client`` with address and credentials: the vendor has no Python client.

        ``options`` are those of ``httpx.Client``. The handle closes it with itself. Raises
        ``ContractError`` where httpx is not installed.
        """
        __tracebackhide__ = True
        client: httpx.Client = self._official(self._make_client, options)
        self._at_close(client.close)
        return client

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """Make an ``httpx.AsyncClient`` with address and credentials."""
        __tracebackhide__ = True
        client: httpx.AsyncClient = self._official(self._make_async_client, options)
        return client

    def _make_client(self, **options: Any) -> httpx.Client:
        import httpx

        return httpx.Client(base_url=self.url, headers=self.headers, **options)

    def _make_async_client(self, **options: Any) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(base_url=self.url, headers=self.headers, **options)

    @property
    def aio(self) -> AioBroker:
        """Awaitable twins: ``await broker.aio.wait_for_record(...)``."""
        return cast("AioBroker", Twin(self, ["wait_for_record"]))

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
        __tracebackhide__ = True
        self._add_topic(
            topic,
            partitions,
            retention,
            retention_bytes=retention_bytes,
            max_message_bytes=max_message_bytes,
            first_offset=first_offset,
        )
        return self.topic(topic)

    def _add_topic(
        self, topic: str, partitions: int = 1, retention: Duration | None = None, **options: Any
    ) -> None:
        retention_ms = None if retention is None else _ms(retention)
        self._engine.create_topic(topic, partitions, retention_ms=retention_ms, **options)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and every group's offsets in it; its readers rebalance.

        Raises ``ContractError`` for an unknown topic.
        """
        __tracebackhide__ = True
        string("topic", topic)
        self._time.settle()
        with as_misuse():
            self._engine.delete_topic(topic)

    def add_partitions(self, topic: str, count: int = 1) -> int:
        """Give a topic that many more partitions and return its count. Its groups rebalance."""
        __tracebackhide__ = True
        string("topic", topic)
        self._time.settle()
        with as_misuse():
            return self._engine.add_partitions(topic, count)

    def set_retention(
        self,
        topic: str,
        retention: Duration | None = None,
        *,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace how long, and how many bytes of each partition, a topic keeps; None: for ever."""
        __tracebackhide__ = True
        string("topic", topic)
        with as_misuse():
            self._engine.set_retention(
                topic,
                retention_ms=None if retention is None else _ms(retention),
                retention_bytes=retention_bytes,
            )

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
        """Put a record into a topic, or several: a list as value is a batch.

        Values that are no text are stored as JSON; items of a batch may be ``ProducerRecord``.
        ``timestamp`` is milliseconds or an instant. Returns ``Metadata``, a list of them for a
        batch. Records a tester puts in are no answer to ``assert_produced``.
        """
        __tracebackhide__ = True
        self._time.settle()
        like = checked(
            ProducerRecord(topic, "", key, partition, timestamp_ms(timestamp), header_list(headers))
        )
        messages = [
            checked(item) if isinstance(item, ProducerRecord) else like._replace(value=text(item))
            for item in (value if isinstance(value, list) else [value])
        ]
        with as_misuse():
            places = self._engine.produce(messages, by_client=False)
        return places if isinstance(value, list) else places[0]

    def load(self, data: Loadable) -> None:
        """Put records in: ``{topic: [value or message, ...]}``, messages with a topic, or JSON lines.

        A message is a mapping with ``value`` and any of ``topic``, ``key``, ``partition``,
        ``timestamp`` and ``headers``. A ``Path``, or text, holds one message as JSON on each line.
        Topics that do not exist are created, with the partitions they need. All of it is loaded or,
        with an error, nothing.
        """
        __tracebackhide__ = True
        messages = list(messages_in(data))
        needed: dict[str, int] = {}
        for message in messages:
            needed[message.topic] = max(needed.get(message.topic, 1), (message.partition or 0) + 1)
        if isinstance(data, Mapping):
            needed = {**dict.fromkeys(data, 1), **needed}
        with as_misuse():
            self._engine.load(needed, messages)

    def delete_records(self, topic: str, *, before: int, partition: int | None = None) -> int:
        """Forget the records below an offset, in one partition or in all, and count them."""
        __tracebackhide__ = True
        string("topic", topic)
        whole("before", before, 0)
        whole("partition", partition, 0, optional=True)
        with as_misuse():
            return self._engine.delete_records(topic, partition, before)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set a group's committed offset, whoever owns the partition; creates the group.

        It stands until a client commits, or auto commit is on and more is delivered.
        """
        __tracebackhide__ = True
        string("group", group)
        string("topic", topic)
        whole("partition", partition, 0)
        whole("offset", offset, 0, INT64_MAX)
        self._time.settle()
        with as_misuse():
            self._engine.set_committed(group, TopicPartitionOffset(topic, partition, offset))

    # -- making it happen ------------------------------------------------------------------------

    def crash(self, group: str, instance: str) -> None:
        """Let an instance vanish: no commit, no leave; its partitions wait for its session's end."""
        __tracebackhide__ = True
        _check_instance(group, instance)
        self._time.settle()
        with as_misuse():
            self._engine.crash(group, instance)

    def expire(self, group: str, instance: str) -> None:
        """End an instance's session now: its partitions go to others, and a late commit fails."""
        __tracebackhide__ = True
        _check_instance(group, instance)
        self._time.settle()
        with as_misuse():
            self._engine.expire(group, instance)

    def rebalance(self, group: str) -> GroupView:
        """Let a group hand out its partitions anew; positions return to the committed offsets.

        Members with auto commit on commit first what they were given, as in every rebalance.
        """
        __tracebackhide__ = True
        string("group", group)
        self._time.settle()
        self._engine.rebalance(group)
        return self.group(group)

    def join(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        *,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
    ) -> GroupView:
        """Let an instance join a group without consuming; it idles like any other instance.

        ``auto_offset_reset`` is where it starts in a partition for which the group has no committed
        offset, as the header of that name of a consume request.
        """
        __tracebackhide__ = True
        _check_instance(group, instance)
        wanted = strings("topics", topics)
        if not wanted:
            raise ContractError("topics is empty: an instance joins to read at least one")
        string("auto_offset_reset", auto_offset_reset)
        choice("auto_offset_reset", auto_offset_reset, *AUTO_OFFSET_RESETS)
        self._time.settle()
        with as_misuse():
            self._engine.join(group, instance, wanted, auto_offset_reset)
        return self.group(group)

    def leave(self, group: str, instance: str) -> GroupView:
        """Let an instance leave its group, as delete-consumer does."""
        __tracebackhide__ = True
        _check_instance(group, instance)
        self._time.settle()
        with as_misuse():
            self._engine.delete_consumer(group, instance)
        return self.group(group)

    def redeliver(
        self, group: str, last: int = 1, *, topic: str | None = None, partition: int | None = None
    ) -> Found[Record]:
        """Deliver a group's last records again, as if their commits had been lost.

        ``topic`` and ``partition`` narrow what counts. Where no instance owns a partition, its next
        owner also gets every record that was delivered and never committed. Returns the records
        that will come again.
        """
        __tracebackhide__ = True
        self._time.settle()
        string("group", group)
        string("topic", topic, optional=True)
        whole("redeliver's last", last, 1)
        whole("partition", partition, 0, optional=True)
        with as_misuse():
            return self._found(self._engine.redeliver(group, last, topic, partition))

    @contextmanager
    def reorder(self) -> Iterator[None]:
        """Mix the records of different partitions in seeded random order within the block.

        Order within each partition is kept, as everywhere.
        """
        with self._engine.reorder():
            yield

    def partial_produce(self, keep: int, *, times: int = 1) -> None:
        """Make the next client batch larger than ``keep`` fail with 503 after that many messages."""
        __tracebackhide__ = True
        whole("partial_produce's keep", keep, 0)
        whole("partial_produce's times", times, 1, 1_000_000)
        self._engine.fail_batches(keep, times)


def _check_instance(group: object, instance: object) -> None:
    string("group", group)
    string("instance", instance)


def _ms(duration: Duration) -> int:
    return duration_us(duration) // 1000


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
        choice(f"an option of topic {topic!r}", option, *known)
    return dict(options)


def _basic(username: str, password: str) -> str:
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()
