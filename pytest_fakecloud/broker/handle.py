"""The ``Broker`` class, the type of the ``broker`` fixture."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack, overload

from ..core.concurrency.aio import in_thread
from ..core.errors import ContractError, importing
from ..core.settings import choice, whole
from ..core.timeparse import Duration
from ..core.wording import unknown_name
from ..faults.table import FaultTable
from ..handle import Aio, Context, action
from .assertions import BrokerAssertions, ListedFields
from .engine import MemoryEngine
from .errors import string, strings
from .faults import BrokerFaults
from .loading import Headers, Loadable, checked, header_list, messages_in, text, timestamp_ms
from .model import (
    AUTO_OFFSET_RESETS,
    INT64_MAX,
    Metadata,
    ProducerRecord,
    Record,
    TopicConfig,
    TopicPartitionOffset,
)
from .routes import BrokerApp
from .settings import BrokerConfig, BrokerSettings
from .views import GroupView, TopicView, milliseconds

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

    ``settings`` are the keyword arguments in ``BrokerSettings``.
    """

    service: ClassVar[str] = "broker"
    fixture: ClassVar[str] = "broker"

    if TYPE_CHECKING:
        journal: BrokerJournal

    _settings = BrokerConfig

    _engine: BrokerEngine
    faults: BrokerFaults

    def __init__(self, context: Context, **settings: Unpack[BrokerSettings]) -> None:
        config = self._configure(context, BrokerConfig, settings)
        self.username = config.username
        self._engine = _make_engine(context, config)
        try:
            for topic, options in (config.topics or {}).items():
                self._engine.topics.create(topic, _topic_config(topic, options))
            table = FaultTable(context.ids.stream(config.name or "broker", "faults"), context.clock)
            app = BrokerApp(self._engine, lambda: (self.username, self.token))
            super().__init__(context, app, config, faults=BrokerFaults(table, self))
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

        Values that are not strings are stored as JSON; items of a batch can be ``ProducerRecord``.
        ``timestamp`` is in milliseconds or an ISO time. Returns the record's ``topic``,
        ``partition``, ``offset`` and ``timestamp`` (in milliseconds); for a batch, a list of them.
        ``assert_produced()`` does not count these records.
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
        with self._settled(group=group, instance=instance):
            self._engine.groups.join(group, instance, wanted, auto_offset_reset)
        return self.group(group)


def _make_engine(context: Context, config: BrokerConfig) -> BrokerEngine:
    url, name = config.engine, config.name or "broker"
    if url is None:
        return MemoryEngine(context.clock, context.ids, config, name=name)
    with importing(f"engine={url.partition('://')[0]!r}", extra="kafka"):
        from .kafka.engine import KafkaEngine
    return KafkaEngine(context.clock, context.ids, config, url, name=name)


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
    return TopicConfig(retention_ms=milliseconds(given.pop("retention", None)), **given)
