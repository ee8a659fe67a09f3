"""Errors of the broker, each with a kind, an HTTP status and a message.

The vendor documents the envelope ``{error, status}`` and three causes (illegal argument,
unauthorized access, invalid API call). Kinds, statuses and messages are decided here and follow
Kafka's error codes. The broker's ``errors`` setting replaces the status or the message of a kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from ..core.errors import ContractError, ServiceError, counted, unknown_name

STATUSES: Mapping[str, int] = {
    "unauthorized": 401,
    "unknown_path": 404,
    "wrong_method": 405,
    "illegal_argument": 400,
    "conflicting_offsets": 400,
    "unknown_topic": 404,
    "unknown_partition": 400,
    "invalid_topic": 400,
    "record_too_large": 413,
    "quota_exceeded": 429,
    "no_offset": 400,
    "offset_out_of_range": 400,
    "too_many_instances": 400,
    "unknown_instance": 404,
    "unknown_group": 404,
    "not_assigned": 409,
    "rebalance_in_progress": 409,
    "unknown_member": 409,
    "not_enough_replicas": 503,
}
"""The HTTP status of each kind of error."""


TOPIC_NAME = r"[A-Za-z0-9._-]{1,249}"


class BrokerError(ServiceError):
    """An error response of the broker. ``kind`` is a key of ``STATUSES``."""

    __module__ = "pytest_fakecloud"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        unknown: tuple[str, str, Iterable[str]] | None = None,
    ) -> None:
        super().__init__(STATUSES[kind], message, headers=headers)
        self.kind = kind
        self.unknown = unknown
        """For an unknown name: what it names, the name, and the known names."""


class AsMisuse(AbstractContextManager[None]):
    """Converts a ``BrokerError`` raised in a ``with`` block to a ``ContractError``.

    If the service would reject an operation that the test itself requests, the test is wrong.
    """

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, BrokerError):
            text = error.message if error.unknown is None else unknown_name(*error.unknown)
            advice = "" if error.unknown is None else _advice(*error.unknown[:2])
            raise ContractError(f"{text}{advice}") from error


def _advice(noun: str, name: str) -> str:
    """Return what a test can do about an unknown name; empty for groups and instances, which clients
    create.
    """
    if noun != "topic":
        return ""
    return f". Using a topic never creates it: call broker.create_topic({name!r}) first"


def illegal_argument(message: str) -> BrokerError:
    return BrokerError("illegal_argument", message)


def can_name_a_topic(name: str) -> bool:
    return re.fullmatch(TOPIC_NAME, name) is not None and name not in (".", "..")


def missing_topic(topic: str, topics: list[str]) -> BrokerError:
    """Return the error for an invalid topic name, or for a topic that does not exist.

    Using a topic never creates it.
    """
    if not can_name_a_topic(topic):
        return invalid_topic(topic)
    names = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "") if topics else "none"
    return BrokerError(
        "unknown_topic",
        f"This server does not host topic {topic[:249]!r}. Known topics: {names}",
        unknown=("topic", topic, topics),
    )


def unknown_partition(topic: str, partition: int, count: int) -> BrokerError:
    return BrokerError(
        "unknown_partition",
        f"Invalid partition {partition} for topic {topic!r}: it has the partitions 0 "
        f"to {count - 1}",
    )


def invalid_topic(topic: str) -> BrokerError:
    if len(topic) > 249:
        return BrokerError(
            "invalid_topic", f"Topic name is {len(topic)} characters long; the maximum is 249"
        )
    return BrokerError(
        "invalid_topic",
        f"Topic name {topic!r} is illegal: use ASCII letters, digits, '.', '_' and '-', "
        "and neither '.' nor '..'",
    )


def record_too_large(size: int, limit: int) -> BrokerError:
    """Return the error for a message that exceeds the size limit of its topic."""
    return BrokerError(
        "record_too_large",
        f"The message is {size} bytes, larger than the maximum message size of {limit} bytes",
    )


def out_of_range(topic: str, partition: int, offset: int, start: int, end: int) -> BrokerError:
    return BrokerError(
        "offset_out_of_range",
        f"Offset out of range: {offset} is outside {start} to {end} of {topic}-{partition}",
    )


def no_offset(topic: str, partition: int) -> BrokerError:
    """Return the error for reading without a committed offset when the reset policy is ``none``."""
    return BrokerError(
        "no_offset",
        f"Undefined offset with no reset policy for partition {topic}-{partition}: nothing was "
        "committed for the group and the auto offset reset is none",
    )


def unknown_instance(
    group: str, instance: str, instances: Mapping[str, Iterable[str]], noun: str = "live instance"
) -> BrokerError:
    """Return the error for an instance that was never created, was closed, or was deleted.

    ``instances`` maps each group to the names that exist in it, which ``noun`` describes.
    """
    unknown = ("group", group, sorted(instances))
    if group in instances:
        unknown = (f"{noun} of group {group!r}", instance, sorted(instances[group]))
    return BrokerError(
        "unknown_instance",
        f"Consumer instance {instance!r} of group {group!r} does not exist: it was never created, "
        "was closed after idling, or was deleted; a consume request creates it",
        unknown=unknown,
    )


def unknown_group(group: str, groups: Iterable[str]) -> BrokerError:
    """Return the error for a group that has neither members nor committed offsets."""
    return BrokerError(
        "unknown_group",
        f"Consumer group {group!r} does not exist",
        unknown=("group", group, sorted(groups)),
    )


def too_many_instances(active: int, limit: int) -> BrokerError:
    """Return the error for having more consumer instances than partitions."""
    return BrokerError(
        "too_many_instances",
        f"Too many consumer instances: {active} are active and the total number of partitions "
        f"is {limit}; delete an instance first",
    )


def not_assigned(group: str, instance: str, topic: str, partition: int) -> BrokerError:
    """Return the error for a commit to a partition that another instance owns."""
    return BrokerError(
        "not_assigned",
        f"Commit cannot be completed: {topic}-{partition} is not assigned to instance "
        f"{instance!r} of group {group!r}",
    )


def rebalance_in_progress(group: str) -> BrokerError:
    """Return the error for a commit between the revocation of partitions and the next assignment."""
    return BrokerError(
        "rebalance_in_progress",
        f"Commit cannot be completed: group {group!r} is rebalancing; consume again first",
    )


def unknown_member(group: str, instance: str) -> BrokerError:
    """Return the error for a commit by an instance whose session has expired."""
    return BrokerError(
        "unknown_member",
        f"Commit cannot be completed: the session of instance {instance!r} expired and group "
        f"{group!r} has given its partitions away; consume again to rejoin",
    )


def partly_appended(count: int) -> BrokerError:
    """Return the error for a batch of which only the first messages were appended."""
    return BrokerError(
        "not_enough_replicas",
        f"Not enough in-sync replicas after appending {counted(count, 'message')} of the batch",
    )


# -- arguments of tests ----------------------------------------------------------------------------


def string(name: str, value: object, *, optional: bool = False) -> None:
    """Raise ``ContractError`` unless the value is a string. ``optional`` also allows None."""
    if not isinstance(value, str) and not (value is None and optional):
        raise ContractError(
            f"{name} must be a string{', or None' if optional else ''}, got {value!r}"
        )


def strings(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ContractError(f"{name}={value!r} is a single string: pass a list of strings")
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        texts = tuple(value)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise ContractError(f"{name} must be a list of strings, got {value!r:.200}")
