"""Errors of a real cluster, as errors of the REST API."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ...core.errors import ContractError
from ..errors import BrokerError

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
    kind = _KINDS.get(error.code())
    return Unavailable(error.str()) if kind is None else BrokerError(kind, error.str())


def real_only(what: str) -> ContractError:
    """Return the error of an action that only the in-memory engine can perform."""
    return ContractError(
        f"{what} is not possible with a real cluster: use the in-memory engine (leave out engine=)"
    )
