"""librdkafka's mock cluster, with an implementation of the admin requests that it does not support.

The library of confluent-kafka contains it; ctypes calls it. Only tests use it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from pytest_fakecloud.broker.real_kafka.cluster import Cluster

SETTINGS = "static=false&heartbeat.interval.ms=50&fetch.wait.max.ms=10&request.timeout=5"
"""No static members, and no long fetches that would have to be woken."""


def library() -> str | None:
    """Return the path of confluent-kafka's librdkafka, or None if it has no mock cluster."""
    package = Path(confluent_kafka.__file__).parent
    places = [package.parent / "confluent_kafka.libs", package / ".dylibs", package]
    for place in places:
        for file in sorted(place.glob("*librdkafka*")):
            try:
                loaded = ctypes.CDLL(str(file))
            except OSError:
                continue
            if hasattr(loaded, "rd_kafka_mock_cluster_new"):
                return str(file)
    return None


class MockCluster:
    """A broker in this process that implements Kafka's protocol on its own port.

    Groups form without a delay. ``down()`` and ``up()`` stop and start accepting connections.
    """

    def __init__(self, path: str) -> None:
        self._so = so = ctypes.CDLL(path)
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, arguments in [
            ("rd_kafka_conf_new", pointer, []),
            ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
            ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
            ("rd_kafka_destroy", None, [pointer]),
            ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
            ("rd_kafka_mock_cluster_destroy", None, [pointer]),
            ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
            ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
            ("rd_kafka_mock_topic_delete", number, [pointer, text]),
            ("rd_kafka_mock_partition_delete_records", number,
             [pointer, text, ctypes.c_int32, ctypes.c_int64]),
            ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
            ("rd_kafka_mock_push_request_errors_array", None,
             [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)]),
        ]:  # fmt: skip
            if hasattr(so, name):
                function: Any = getattr(so, name)
                function.restype, function.argtypes = result, arguments
        self.deletes = hasattr(so, "rd_kafka_mock_topic_delete")
        """Whether it can delete topics and records; older versions ignore such requests."""
        reason = ctypes.create_string_buffer(256)
        conf = so.rd_kafka_conf_new()
        so.rd_kafka_conf_set(conf, b"log_level", b"0", reason, 256)
        self._client = so.rd_kafka_new(0, conf, reason, 256)
        assert self._client, reason.value
        self._cluster = so.rd_kafka_mock_cluster_new(self._client, 1)
        so.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.bootstrap: str = so.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int) -> None:
        code = self._so.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        assert code == 0, f"the mock cluster answers {code}"

    def delete_topic(self, name: str) -> None:
        if self.deletes:
            self._so.rd_kafka_mock_topic_delete(self._cluster, name.encode())

    def delete_records(self, name: str, partition: int, before: int) -> None:
        code = self._so.rd_kafka_mock_partition_delete_records(
            self._cluster, name.encode(), partition, before
        )
        assert code == 0, f"the mock cluster answers {code}"

    def fail_next(self, request: int, *codes: int) -> None:
        """Answer the next requests of a kind (a number of Kafka's protocol) with errors."""
        self._so.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, len(codes), (ctypes.c_int * len(codes))(*codes)
        )

    def down(self) -> None:
        self._so.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        self._so.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def close(self) -> None:
        self._so.rd_kafka_mock_cluster_destroy(self._cluster)
        self._so.rd_kafka_destroy(self._client)

    def administered(self) -> type[Cluster]:
        """Return a ``Cluster`` class with admin requests, because the mock has no controller."""
        mock = self

        class Administered(Cluster):
            def create_topic(self, name: str, partitions: int, config: Any) -> None:
                mock.create_topic(name, partitions)

            def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
                for (topic, partition), offset in before.items():
                    mock.delete_records(topic, partition, offset)

            def delete(self, topics: list[str], groups: list[str]) -> None:
                for topic in topics:
                    mock.delete_topic(topic)

        return Administered
