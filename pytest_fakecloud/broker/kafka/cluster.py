"""Admin operations on a real Kafka cluster, and the syntax of its address."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import admin as _admin

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ..errors import STATUSES, BrokerError

# The type stubs bundled with the library cover only half of this module.
_api: Any = _admin

REQUEST_TIMEOUT = 5.0
"""Default time limit of an admin request, in seconds."""
_MORE = 1.0
"""Seconds to wait beyond the time limit of a request, so that librdkafka can report the timeout."""
_CONFLICTS = {
    KafkaError.ILLEGAL_GENERATION: "rebalance_in_progress",
    KafkaError.REBALANCE_IN_PROGRESS: "rebalance_in_progress",
    KafkaError.UNKNOWN_MEMBER_ID: "unknown_member",
}
_REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "record_too_large",
    KafkaError.RECORD_LIST_TOO_LARGE: "record_too_large",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "unknown_topic",
    KafkaError._UNKNOWN_TOPIC: "unknown_topic",
    KafkaError._UNKNOWN_PARTITION: "unknown_partition",
    KafkaError.TOPIC_EXCEPTION: "invalid_topic",
    KafkaError.OFFSET_OUT_OF_RANGE: "offset_out_of_range",
    KafkaError.NOT_ENOUGH_REPLICAS: "not_enough_replicas",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "not_enough_replicas",
    **_CONFLICTS,
}


class Unavailable(BrokerError):
    """Raised when the real cluster does not respond. The REST API then returns 503."""

    def __init__(self, reason: object) -> None:
        super().__init__("not_enough_replicas", f"The cluster is not available: {reason}")


def translated(error: Any) -> BrokerError:
    """Convert an error of librdkafka to the error that clients receive."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return Unavailable(error)
    kind = _REFUSALS.get(error.code())
    if kind is None or kind not in STATUSES:
        return Unavailable(error.str())
    return BrokerError(kind, error.str())


def real_only(what: str) -> ContractError:
    return ContractError(
        f"{what} is not possible with a real cluster: use the in-memory engine (leave out engine=)"
    )


def when_away(tell: Callable[[], object]) -> Callable[[Any], None]:
    """Return an ``error_cb`` that calls ``tell`` when a client has lost its connections to all
    brokers.
    """

    def note(error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            tell()

    return note


def silent() -> logging.Logger:
    """Return a logger that discards librdkafka's messages.

    Otherwise librdkafka would report every lost connection on stderr.
    """
    logger = logging.getLogger("pytest_fakecloud.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


class Address:
    """A parsed address: ``kafka://[user:password@]host:port[,host:port…][?setting=value&…]``.

    The settings are librdkafka's and apply to every client, except three settings of this package:
    ``prefix`` is a prefix of topics and groups, for sharing them with other processes on purpose.
    ``static`` is whether instances are static members (true by default). ``request.timeout`` is the
    time in seconds until a cluster counts as unavailable (5 by default). Raises ``ContractError``
    for an invalid address.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        if parts.scheme not in ("kafka", "kafkas") or not hosts:
            raise ContractError(
                f"engine={parts.scheme or url!r} is unknown: pass an address such as "
                "'kafka://127.0.0.1:9092'"
            )
        settings = dict(parse_qsl(parts.query))
        self.where = hosts
        self.prefix = settings.pop("prefix", None)
        self.static = _flag("static", settings.pop("static", "true"))
        self.timeout = _seconds(settings.pop("request.timeout", None))
        tls = parts.scheme == "kafkas"
        base: dict[str, Any] = {
            "bootstrap.servers": hosts,
            "log_level": 0,
            # Reconnect quickly. By default, librdkafka can take ten seconds to notice that a
            # cluster is back, and it delays the first connection to a known broker by a tenth of a
            # second.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1000,
        }
        if user:
            name, _, password = user.partition(":")
            base["sasl.mechanism"] = "PLAIN"
            base["sasl.username"], base["sasl.password"] = unquote(name), unquote(password)
            base["security.protocol"] = "SASL_SSL" if tls else "SASL_PLAINTEXT"
        elif tls:
            base["security.protocol"] = "SSL"
        self._base = base
        self._settings = settings

    def settings(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a client. Settings in the address override those in ``what``."""
        return {**self._base, **what, **self._settings, "logger": silent()}


def _seconds(text: str | None) -> float:
    if text is None:
        return REQUEST_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ContractError(
            f"request.timeout={text!r} is invalid: pass a positive number of seconds"
        )
    return seconds


def _flag(name: str, text: str) -> bool:
    word = text.lower()
    if word not in ("true", "1", "yes", "false", "0", "no"):
        raise ContractError(f"{name}={text!r} is invalid: pass true or false")
    return word in ("true", "1", "yes")


class Cluster:
    """Admin operations on a cluster. Names of topics and groups are those on the cluster.

    Operations raise ``BrokerError``, and ``Unavailable`` if the cluster does not respond in time.
    """

    def __init__(self, address: Address) -> None:
        self._timeout = address.timeout
        self._ended: Future[None] = Future()
        try:
            self._admin = _api.AdminClient(address.settings({}))
        except KafkaException as error:
            raise ContractError(
                f"the address of {address.where} has a setting that librdkafka rejects: "
                f"{error.args[0].str()}"
            ) from None

    def topics(self) -> dict[str, int]:
        """Return partition counts by topic name, without the cluster's internal topics.

        All topics are requested, because requesting a topic by name might create it.
        """
        found = self._asked(lambda: self._admin.list_topics(timeout=self._timeout))
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if not name.startswith("__") and topic.error is None
        }

    def interrupt(self) -> None:
        """Make every waiting call fail now, as if the cluster were unavailable."""
        ended, self._ended = self._ended, Future()
        ended.set_result(None)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        # Run the library's call in a daemon thread, because it cannot be interrupted and must not
        # delay the exit of the process.
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(ask())
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="fakecloud cluster", daemon=True).start()
        return self._result(answer)

    def _result(self, future: Any) -> Any:
        wait((future, self._ended), self._timeout + _MORE, FIRST_COMPLETED)
        if not future.done():
            raise Unavailable("it did not respond")
        try:
            return future.result()
        except KafkaException as error:
            raise translated(error) from None

    def answers(self, seconds: float) -> bool:
        try:
            self._admin.list_topics(timeout=min(seconds, self._timeout))
        except KafkaException:
            return False
        return True

    def offsets(self, wanted: Mapping[tuple[str, int], str | int]) -> dict[tuple[str, int], int]:
        """Return one offset for each partition in ``wanted``.

        A partition's value is ``"earliest"``, ``"latest"``, or a time in ms. A time selects the
        first offset at or after it, or -1 if there is none.
        """
        if not wanted:
            return {}
        specs = {TopicPartition(*tp): _spec(at) for tp, at in wanted.items()}
        asked = self._admin.list_offsets(specs, request_timeout=self._timeout)
        found = {
            (tp.topic, tp.partition): self._result(future).offset for tp, future in asked.items()
        }
        unknown = [f"{topic}-{number}" for (topic, number), at in found.items() if at < OFFSET_END]
        if unknown:
            raise Unavailable(f"it did not return the offsets of {', '.join(unknown)}")
        return found

    def group_offsets(
        self, group: str, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*tp) for tp in places])
        asked = self._admin.list_consumer_group_offsets([wanted], request_timeout=self._timeout)
        found = self._result(next(iter(asked.values())))
        return {
            (tp.topic, tp.partition): tp.offset
            for tp in found.topic_partitions or []
            if tp.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit for a group without being a member.

        The cluster rejects this while the group has members.
        """
        places = [TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=self._timeout
        )
        for place in self._result(next(iter(asked.values()))).topic_partitions or []:
            if place.error is not None:
                raise translated(place.error)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        topic = _api.NewTopic(name, num_partitions=partitions, config=dict(config))
        asked = self._admin.create_topics([topic], request_timeout=self._timeout)
        self._result(asked[name])

    def add_partitions(self, name: str, total: int) -> None:
        asked = self._admin.create_partitions(
            [_api.NewPartitions(name, total)], request_timeout=self._timeout
        )
        self._result(asked[name])

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        asked = self._admin.delete_records(
            [TopicPartition(*tp, offset) for tp, offset in before.items()],
            request_timeout=self._timeout,
        )
        for future in asked.values():
            self._result(future)

    def delete(self, topics: list[str], groups: list[str]) -> None:
        """Delete topics and groups, ignoring those that do not exist."""
        asked: list[Future[Any]] = []
        if topics:
            asked += self._admin.delete_topics(topics, request_timeout=self._timeout).values()
        if groups:
            asked += self._admin.delete_consumer_groups(
                groups, request_timeout=self._timeout
            ).values()
        until = monotonic() + self._timeout
        for future in asked:
            try:
                future.result(max(0.0, until - monotonic()))
            except (KafkaException, TimeoutError):
                continue


def _spec(at: str | int) -> Any:
    if at == "earliest":
        return _api.OffsetSpec.earliest()
    if at == "latest":
        return _api.OffsetSpec.latest()
    return _api.OffsetSpec.for_timestamp(int(at))
