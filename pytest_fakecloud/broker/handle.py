"""The ``Broker`` class, the type of the ``broker`` fixture."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack, overload

from ..core.concurrency.aio import in_thread
from ..core.errors import ContractError, importing
from ..core.results import Results, results_of
from ..core.settings import choice, optional, whole
from ..core.timeparse import Duration, duration_us
from ..core.wording import shortfall, unknown_name
from ..handle import Aio, Context, action
from .assertions import BrokerAssertions, ListedFields
from .engine.engine import MemoryEngine
from .errors import string, strings
from .loading import Headers, Loadable, checked, header_list, messages_in, text, timestamp_ms
from .model import (
    AUTO_OFFSET_RESETS,
    INT64_MAX,
    RECORD_FIELDS,
    GroupView,
    Metadata,
    ProducerRecord,
    Record,
    TopicConfig,
    TopicPartitionOffset,
    TopicView,
)
from .routes import BrokerApp
from .settings import BrokerConfig, BrokerSettings

if TYPE_CHECKING:
    import httpx

    from .kafka.engine import KafkaEngine
    from .typed import BrokerHandle as Handle
    from .typed import BrokerJournal
else:
    from ..handle import Handle

BrokerEngine: TypeAlias = "MemoryEngine | KafkaEngine"
"""The in-memory engine or the engine on a real cluster, which have the same methods.

Timeouts are in milliseconds and limit how long a call waits. Every method can raise
``BrokerError``. An operation that an engine does not support raises ``ContractError``.
"""


class AioBroker(Aio["httpx.AsyncClient"]):
    """The asynchronous forms of a broker's methods, for asyncio and trio, with the same names."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, partial(broker._make, "AsyncClient"))
        self._broker = broker

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
        return await in_thread(
            self._broker.wait_for_record, topic, predicate, timeout=timeout, **where
        )


class Broker(BrokerAssertions, Handle):
    """A fake of the Upstash Kafka REST API, with topics, partitions and consumer groups.

    ``settings`` are the keywords of ``BrokerSettings``, which ``BrokerConfig`` describes.
    """

    service: ClassVar[str] = "broker"
    fixture: ClassVar[str] = "broker"

    if TYPE_CHECKING:
        journal: BrokerJournal

    _settings = BrokerConfig

    _engine: BrokerEngine

    def __init__(self, context: Context, **settings: Unpack[BrokerSettings]) -> None:
        config = self._configure(context, BrokerConfig, settings)
        self.username = config.username
        self._planned_failures = 0
        self._earlier_failures = 0
        """The number of batches that had failed before the first planned failure."""
        self._engine = _make_engine(context, config)
        try:
            for topic, options in (config.topics or {}).items():
                self._engine.topics.create(topic, _topic_config(topic, options))
            super().__init__(
                context, BrokerApp(self._engine, lambda: (self.username, self.token)), config
            )
        except BaseException:
            self._engine.close()
            raise
        if config.password is not None:
            self.token = config.password
        self._engine.set_listener(self._recorder.add_event)
        self._mount.on_close.append(self._engine.close)
        self._mount.on_reset.append(self._engine.interrupt)

    # -- credentials and clients -----------------------------------------------------------------

    @property
    def password(self) -> str:
        """The password of the REST user; ``rotate_token()`` replaces it."""
        return self.token

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers with the credentials, for requests to the broker."""
        credentials = b64encode(f"{self.username}:{self.token}".encode()).decode()
        return {"Authorization": f"Basic {credentials}"}

    def _env_variables(self) -> dict[str, str]:
        """Return the variables that the vendor's client tests read; the client reads none."""
        return {
            "UPSTASH_KAFKA_REST_URL": self.url,
            "UPSTASH_KAFKA_REST_USERNAME": self.username,
            "UPSTASH_KAFKA_REST_PASSWORD": self.token,
        }

    def client(self, **options: Any) -> httpx.Client:
        """Return an ``httpx.Client`` with the fake's URL and credentials, because the vendor has no
        Python client. ``options`` are passed to it. Closing the fake closes the client.
        """
        client: httpx.Client = self._official(partial(self._make, "Client"), options)
        self._exits.callback(client.close)
        return client

    def _make(self, kind: Literal["Client", "AsyncClient"], **options: Any) -> Any:
        import httpx

        headers = httpx.Headers(self.headers)
        headers.update(options.pop("headers", None))
        return getattr(httpx, kind)(base_url=self.url, headers=headers, **options)

    @property
    def aio(self) -> AioBroker:
        """The asynchronous client, and awaitable versions of the methods that wait."""
        return AioBroker(self)

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
        """Create a topic. Each of its partitions starts at ``first_offset``.

        Omitted arguments default to the broker's settings. Raises ``ContractError`` for an invalid
        name, an existing topic, and numbers out of range.
        """
        with self._settled():
            config = TopicConfig(
                partitions, _ms(retention), retention_bytes, max_message_bytes, first_offset
            )
            self._engine.topics.create(topic, config)
        return self.topic(topic)

    @action
    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and committed offsets. Its groups rebalance."""
        with self._settled(topic=topic):
            self._engine.topics.delete(topic)

    @action
    def add_partitions(self, topic: str, count: int = 1) -> int:
        """Add partitions, rebalance the topic's groups, and return the new partition count."""
        with self._settled(topic=topic):
            return self._engine.topics.add_partitions(topic, count)

    @action
    def set_retention(
        self, topic: str, retention: Duration | None = None, *, retention_bytes: int | None = None
    ) -> None:
        """Set how long a topic keeps records, and how many bytes per partition; None: no limit."""
        with self._settled(topic=topic):
            self._engine.topics.set_retention(
                topic, retention_ms=_ms(retention), retention_bytes=retention_bytes
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

        Values that are not strings are stored as JSON; items of a batch can be ``ProducerRecord``.
        ``timestamp`` is in milliseconds or an ISO time. Returns ``Metadata``, or a list of
        ``Metadata`` for a batch. ``assert_produced()`` does not count these records.
        """
        like = checked(
            ProducerRecord(topic, "", key, partition, timestamp_ms(timestamp), header_list(headers))
        )
        messages = [
            checked(item) if isinstance(item, ProducerRecord) else like._replace(value=text(item))
            for item in (value if isinstance(value, list) else [value])
        ]
        with self._settled():
            produced = self._engine.producing.produce(messages, by_client=False)
        return produced if isinstance(value, list) else produced[0]

    @action
    def load(self, data: Loadable) -> None:
        """Load records from a mapping of topics, a list of messages, or JSON lines.

        A mapping has the form ``{topic: [value or message, ...]}``. A message is a mapping with
        ``value`` and any of ``topic``, ``key``, ``partition``, ``timestamp`` and ``headers``. A
        file given as ``Path``, or a string, contains one message as JSON per line. Missing topics
        are created with the partitions that they need. If any record is invalid, none are loaded.
        """
        messages = list(messages_in(data))
        needed: dict[str, int] = {}
        for message in messages:
            needed[message.topic] = max(needed.get(message.topic, 1), (message.partition or 0) + 1)
        if isinstance(data, Mapping):
            needed = {**dict.fromkeys(data, 1), **needed}
        with self._settled():
            self._engine.load(needed, messages)

    @action
    def delete_records(self, topic: str, *, before: int, partition: int | None = None) -> int:
        """Delete the records below an offset in one partition or in all; return their number."""
        whole(0).read("before", before)
        optional(whole(0)).read("partition", partition)
        with self._settled(topic=topic):
            return self._engine.topics.delete_records(topic, partition, before)

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

    # -- actions on groups -----------------------------------------------------------------------

    @action
    def crash(self, group: str, instance: str) -> None:
        """Crash an instance, which does not commit and keeps its partitions during its session."""
        with self._settled(group=group, instance=instance):
            self._engine.groups.crash(group, instance)

    @action
    def expire(self, group: str, instance: str) -> None:
        """End an instance's session, reassign its partitions, and reject its later commits."""
        with self._settled(group=group, instance=instance):
            self._engine.groups.expire(group, instance)

    @action
    def rebalance(self, group: str) -> GroupView:
        """Make a group rebalance, after the usual automatic commits of its members."""
        with self._settled(group=group):
            self._engine.groups.rebalance(group)
        return self.group(group)

    @action
    def join(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        *,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
    ) -> GroupView:
        """Add an instance to a group without consuming.

        ``auto_offset_reset`` determines where the instance starts in a partition without a
        committed offset, like the consume request's header of that name. The instance is closed
        when it has been idle for too long, like any other.
        """
        wanted = strings("topics", topics)
        if not wanted:
            raise ContractError("topics is empty: pass at least one topic for the instance to read")
        string("auto_offset_reset", auto_offset_reset)
        choice(*AUTO_OFFSET_RESETS).read("auto_offset_reset", auto_offset_reset)
        with self._settled(group=group, instance=instance):
            self._engine.groups.join(group, instance, wanted, auto_offset_reset)
        return self.group(group)

    @action
    def leave(self, group: str, instance: str) -> GroupView:
        """Make an instance leave its group, as a delete-consumer request does."""
        with self._settled(group=group, instance=instance):
            self._engine.groups.delete(group, instance)
        return self.group(group)

    @action
    def redeliver(
        self, group: str, last: int = 1, *, topic: str | None = None, partition: int | None = None
    ) -> Results[Record]:
        """Deliver a group's last records again, as if their commits had been lost.

        ``topic`` and ``partition`` limit this to the records of a topic or partition. In a
        partition without an owner, the next owner also receives every record that was delivered but
        never committed. Returns the records that will be delivered again.
        """
        string("topic", topic, optional=True)
        whole(1).read("last", last, "redeliver()")
        optional(whole(0)).read("partition", partition)
        with self._settled(group=group):
            records = self._engine.groups.redeliver(group, last, topic, partition)
        return results_of(records, RECORD_FIELDS, "record")

    @contextmanager
    def reorder(self) -> Iterator[None]:
        """Mix records of different partitions in seeded random order during a ``with`` block.

        Raises ``ContractError`` at its end if no consumer received records of two partitions at
        once, because nothing was mixed. An exception of the block itself is not replaced.
        """
        with self._engine.groups.reorder():
            yield

    @action
    def partial_produce(self, keep: int, *, times: int = 1) -> None:
        """Make the next ``times`` client batches of more than ``keep`` messages fail with status
        503. The first ``keep`` messages of each such batch are stored.

        A strict test fails if fewer batches failed (violation ``unmet``).
        """
        whole(0).read("keep", keep, "partial_produce()")
        whole(1, 1_000_000).read("times", times, "partial_produce()")
        producing = self._engine.producing
        producing.fail_batches(keep, times)
        if not self._planned_failures:
            self._earlier_failures = producing.failed_batches
        self._planned_failures += times

    def _forget_plans(self) -> None:
        self._planned_failures = 0

    def _unmet(self) -> list[str]:
        failed = self._engine.producing.failed_batches - self._earlier_failures
        if failed >= self._planned_failures:
            return []
        return [
            f"partial_produce() {shortfall('happened', failed, self._planned_failures)}: a client "
            "must send a batch with more messages than keep= for each"
        ]


def _make_engine(context: Context, config: BrokerConfig) -> BrokerEngine:
    url, name = config.engine, config.name or "broker"
    if url is None:
        return MemoryEngine(context.clock, context.ids, config, name=name)
    with importing(f"engine={url.partition('://')[0]!r}", extra="kafka"):
        from .kafka.engine import KafkaEngine
    return KafkaEngine(context.clock, context.ids, config, url, name=name)


def _ms(duration: Duration | None) -> int | None:
    return None if duration is None else duration_us(duration) // 1000


def _topic_config(topic: str, options: object) -> TopicConfig:
    known = [name.removesuffix("_ms") for name in TopicConfig._fields]
    if isinstance(options, int) and not isinstance(options, bool):
        return TopicConfig(options)
    if not isinstance(options, Mapping):
        raise ContractError(
            f"topics[{topic!r}]={options!r} is invalid: pass a partition count, or a mapping with "
            f"any of {', '.join(known)}"
        )
    for option in options:
        if option not in known:
            raise ContractError(unknown_name(f"option of topics[{topic!r}]", option, known))
    given = dict(options)
    return TopicConfig(retention_ms=_ms(given.pop("retention", None)), **given)
