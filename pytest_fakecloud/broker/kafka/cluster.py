"""Admin operations on a real Kafka cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import admin as _admin

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from .client import Address, Unavailable, complete, translated

# The type stubs bundled with the library cover only half of this module.
_api: Any = _admin

_GRACE_SECONDS = 1.0
"""Seconds to wait beyond the time limit of a request, so that librdkafka can report the timeout."""


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
        found = self._call_in_thread(lambda: self._admin.list_topics(timeout=self._timeout))
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if not name.startswith("__") and topic.error is None
        }

    def interrupt(self) -> None:
        """Make every waiting call fail now, as if the cluster were unavailable."""
        ended, self._ended = self._ended, Future()
        ended.set_result(None)

    def _call_in_thread(self, ask: Callable[[], Any]) -> Any:
        # The library's call cannot be interrupted and must not delay the exit of the process.
        answer: Future[Any] = Future()
        run = partial(complete, answer, ask)
        threading.Thread(target=run, name="fakecloud cluster", daemon=True).start()
        return self._result(answer)

    def _result(self, future: Any) -> Any:
        wait((future, self._ended), self._timeout + _GRACE_SECONDS, FIRST_COMPLETED)
        if not future.done():
            raise Unavailable("it did not respond")
        try:
            return future.result()
        except KafkaException as error:
            raise translated(error) from None

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
        specs = {TopicPartition(*tp): _spec(at) for tp, at in wanted.items()}
        results = self._results(self._admin.list_offsets, specs)
        found = {(tp.topic, tp.partition): result.offset for tp, result in results.items()}
        unknown = [f"{topic}-{number}" for (topic, number), at in found.items() if at < OFFSET_END]
        if unknown:
            raise Unavailable(f"it did not return the offsets of {', '.join(unknown)}")
        return found

    def group_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, without partitions that have none."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*tp) for tp in partitions])
        [found] = self._results(self._admin.list_consumer_group_offsets, [wanted]).values()
        return {
            (tp.topic, tp.partition): tp.offset
            for tp in found.topic_partitions or []
            if tp.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit for a group without members. The cluster rejects this if the group has members."""
        partitions = [TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(group, partitions)
        [found] = self._results(self._admin.alter_consumer_group_offsets, [wanted]).values()
        for partition in found.topic_partitions or []:
            if partition.error is not None:
                raise translated(partition.error)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        topic = _api.NewTopic(name, num_partitions=partitions, config=dict(config))
        self._results(self._admin.create_topics, [topic])

    def add_partitions(self, name: str, total: int) -> None:
        self._results(self._admin.create_partitions, [_api.NewPartitions(name, total)])

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        partitions = [TopicPartition(*tp, offset) for tp, offset in before.items()]
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
