"""Connections to a real Kafka cluster: its address, names, admin operations, and errors."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClusterPartition
from confluent_kafka import admin as _admin

from ...core.errors import ContractError
from ...core.threads import DaemonThread
from ...core.timers import monotonic
from ..errors import BrokerError
from ..model import TopicPartition

T = TypeVar("T")
_LOGGER = logging.getLogger("pytest_fakecloud.kafka")
"""A logger that discards librdkafka's messages, such as lost connections."""
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False
POLL_SECONDS = 0.05
"""Seconds between two polls of a waiting call."""
_KINDS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "record_too_large",
    KafkaError.RECORD_LIST_TOO_LARGE: "record_too_large",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "unknown_topic",
    KafkaError._UNKNOWN_TOPIC: "unknown_topic",
    KafkaError._UNKNOWN_PARTITION: "unknown_partition",
    KafkaError.TOPIC_EXCEPTION: "invalid_topic",
    KafkaError.OFFSET_OUT_OF_RANGE: "offset_out_of_range",
    KafkaError.NOT_ENOUGH_REPLICAS: "not_enough_replicas",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "not_enough_replicas",
    KafkaError.ILLEGAL_GENERATION: "rebalance_in_progress",
    KafkaError.REBALANCE_IN_PROGRESS: "rebalance_in_progress",
    KafkaError.UNKNOWN_MEMBER_ID: "unknown_member",
}
"""The error that clients receive for an error of librdkafka; for all others, ``Unavailable``."""


class KafkaAddress:
    """A parsed address: ``kafka://[user:password@]host:port[,host:port…][?setting=value&…]``.

    The settings are librdkafka's and apply to every client, except three settings of this package:
    ``prefix`` is a prefix of topics and groups, for sharing them with other processes on purpose.
    ``static`` is whether instances are static members (true by default). ``request.timeout`` is the
    time in seconds until a cluster counts as unavailable (5 by default). Raises ``ContractError``
    for an invalid address.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            # The address may contain a password, so leave it out.
            raise ContractError(f"engine= is not an address: {error}") from None
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
        self.timeout = _seconds("request.timeout", settings.pop("request.timeout", "5"))
        self._settings = settings
        self._base: dict[str, Any] = {
            "bootstrap.servers": hosts,
            "log_level": 0,
            # Reconnect quickly. By default, librdkafka can take ten seconds to notice that a
            # cluster is back, and it delays the first connection to a known broker by a tenth of a
            # second.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 1000,
            **_security(user, tls=parts.scheme == "kafkas"),
        }

    def settings(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a client. Settings in the address override those in ``what``."""
        return {**self._base, **what, **self._settings, "logger": _LOGGER}


def _security(user: str, *, tls: bool) -> dict[str, str]:
    """Return librdkafka's settings for a connection with ``name:password``, or without a user."""
    if not user:
        return {"security.protocol": "SSL"} if tls else {}
    name, _, password = user.partition(":")
    return {
        "sasl.mechanism": "PLAIN",
        "sasl.username": unquote(name),
        "sasl.password": unquote(password),
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
    }


def _flag(name: str, text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ContractError(f"{name}={text!r} is invalid: pass true or false")
    return words[text.lower()]


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ContractError(f"{name}={text!r} is invalid: pass a positive number of seconds")
    return seconds


class Names:
    """The names of a fake's topics and groups.

    A *real name* is the name that a topic or group has on the cluster. With ``isolation="prefix"``,
    real names start with the fake's own prefix, so that any number of test suites can share a
    cluster. ``shared`` is whether topics stay when the fake is closed, because others share them.
    """

    def __init__(self, isolation: str, prefix: str | None = None) -> None:
        self.shared = isolation == "none" or prefix is not None
        own = f"fakecloud-{secrets.token_hex(5)}."
        self.prefix = self._first_prefix = "" if isolation == "none" else prefix or own
        self._generations = itertools.count(1)

    def renew(self) -> None:
        """Replace the prefix, so that all topics and groups get new real names."""
        self.prefix = f"{self._first_prefix}{next(self._generations)}."

    def real(self, name: str) -> str:
        return self.prefix + name

    def shown(self, name: str) -> str:
        """Return the name that clients use for a topic or group, given its real name."""
        return name.removeprefix(self.prefix)

    def shown_partition(self, tp: tuple[str, int]) -> TopicPartition:
        return TopicPartition(self.shown(tp[0]), tp[1])

    def public(self, text: str) -> str:
        """Remove the prefix from all names in a message of the cluster."""
        return text.replace(self.prefix, "") if self.prefix else text


def when_disconnected(callback: Callable[[], object]) -> Callable[[Any], None]:
    """Return an ``error_cb`` that calls ``callback`` when a client has lost all its connections."""

    def error_cb(error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            callback()

    return error_cb


def complete(result: Future[Any], function: Callable[[], Any]) -> None:
    """Call a function, and set a future to its result or to its error."""
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)


def look_for(seconds: float, look: Callable[[], T | None]) -> T | None:
    """Call ``look`` every 50 ms until it returns a result, for at most ``seconds``."""
    deadline, pause = monotonic() + seconds, threading.Event()
    while (result := look()) is None and monotonic() <= deadline:
        pause.wait(POLL_SECONDS)
    return result


class Unavailable(BrokerError):
    """Raised when the real cluster does not respond. The REST API then returns 503."""

    def __init__(self, reason: object) -> None:
        super().__init__("not_enough_replicas", f"The cluster is not available: {reason}")


def real_only(what: str) -> ContractError:
    """Return the error of an action that only the in-memory engine can perform."""
    return ContractError(
        f"{what} is not possible with a real cluster: use the in-memory engine (leave out engine=)"
    )


def unsupported(what: str) -> Callable[..., NoReturn]:
    """Return a method that raises the error of ``real_only()``."""

    def method(*arguments: object, **named: object) -> NoReturn:
        raise real_only(what)

    return method


# The type stubs bundled with the library cover only half of this module.
_api: Any = _admin

_GRACE_SECONDS = 1.0
"""Seconds to wait beyond the time limit of a request, so that librdkafka can report the timeout."""


class Cluster:
    """Admin operations on a cluster. Names of topics and groups are real names, except in errors.

    Operations raise ``BrokerError``, and ``Unavailable`` if the cluster does not respond in time.
    """

    def __init__(self, address: KafkaAddress, names: Names) -> None:
        self.address = address
        self.names = names
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
        # The library's call cannot be interrupted and must not delay the exit of the process.
        answer: Future[Any] = Future()
        list_topics = partial(self._admin.list_topics, timeout=self._timeout)
        run = partial(complete, answer, list_topics)
        DaemonThread("cluster", run).start()
        return {
            name: len(topic.partitions)
            for name, topic in self._result(answer).topics.items()
            if not name.startswith("__") and topic.error is None
        }

    def translated(self, error: Any) -> BrokerError:
        """Convert an error of librdkafka to the error that clients receive."""
        if isinstance(error, KafkaException):
            error = error.args[0]
        if not isinstance(error, KafkaError):
            return Unavailable(error)
        kind, text = _KINDS.get(error.code()), self.names.public(error.str())
        return Unavailable(text) if kind is None else BrokerError(kind, text)

    def interrupt(self) -> None:
        """Make every waiting call fail now, as if the cluster were unavailable."""
        ended, self._ended = self._ended, Future()
        ended.set_result(None)

    def _result(self, future: Any) -> Any:
        wait((future, self._ended), self._timeout + _GRACE_SECONDS, FIRST_COMPLETED)
        if not future.done():
            raise Unavailable("it did not respond")
        try:
            return future.result()
        except KafkaException as error:
            raise self.translated(error) from None

    def _results(self, ask: Callable[..., Any], about: Any) -> dict[Any, Any]:
        """Call a method of the admin client that returns futures; return their results."""
        futures = ask(about, request_timeout=self._timeout)
        return {key: self._result(future) for key, future in futures.items()}

    def is_reachable(self, seconds: float) -> bool:
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
        specs = {ClusterPartition(*tp): _spec(at) for tp, at in wanted.items()}
        results = self._results(self._admin.list_offsets, specs)
        offsets = {(tp.topic, tp.partition): result.offset for tp, result in results.items()}
        unknown = [
            f"{topic}-{number}" for (topic, number), at in offsets.items() if at < OFFSET_END
        ]
        if unknown:
            text = self.names.public(", ".join(unknown))
            raise Unavailable(f"it did not return the offsets of {text}")
        return offsets

    def group_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, without partitions that have none."""
        wanted = ConsumerGroupTopicPartitions(group, [ClusterPartition(*tp) for tp in partitions])
        [result] = self._results(self._admin.list_consumer_group_offsets, [wanted]).values()
        return {
            (tp.topic, tp.partition): tp.offset
            for tp in result.topic_partitions or []
            if tp.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit for a group without members. The cluster rejects this if the group has members."""
        partitions = [ClusterPartition(*tp, offset) for tp, offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(group, partitions)
        [result] = self._results(self._admin.alter_consumer_group_offsets, [wanted]).values()
        for partition in result.topic_partitions or []:
            if partition.error is not None:
                raise self.translated(partition.error)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        topic = _api.NewTopic(name, num_partitions=partitions, config=dict(config))
        self._results(self._admin.create_topics, [topic])

    def add_partitions(self, name: str, total: int) -> None:
        self._results(self._admin.create_partitions, [_api.NewPartitions(name, total)])

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        partitions = [ClusterPartition(*tp, offset) for tp, offset in before.items()]
        self._results(self._admin.delete_records, partitions)

    def delete(self, topics: list[str], groups: list[str]) -> None:
        """Delete topics and groups, ignoring those that do not exist.

        Waits at most the time limit of one request, because a fake that is closed must not wait long.
        """
        futures: list[Future[Any]] = []
        if topics:
            futures += self._admin.delete_topics(topics, request_timeout=self._timeout).values()
        if groups:
            futures += self._admin.delete_consumer_groups(
                groups, request_timeout=self._timeout
            ).values()
        until = monotonic() + self._timeout
        for future in futures:
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
