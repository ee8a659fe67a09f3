"""What the bucket aggregations share: groups of documents, orders, and the form of replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from ....core.budget import spend
from ..schema import SearchError
from .request import Aggregation, Arguments, DocumentNumbers

MAX_BUCKETS = 65_000
"""Maximum number of buckets in a reply, as in Tantivy."""
STEPS_PER_BUCKET = 20
NUMERIC = ("U64", "I64", "F64", "DATE")
"""The types of fields with numeric values."""

_STEPS_PER_DOCUMENT = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Compute: TypeAlias = Callable[[DocumentNumbers], list[Any]]
"""Returns the reply of an aggregation for the documents with these numbers."""
Groups: TypeAlias = dict[Any, DocumentNumbers]
"""Document numbers by the key of their bucket."""


class Order(NamedTuple):
    """The order of buckets."""

    key: str
    ascending: bool


def parse_order(args: Arguments, allowed: Callable[[str], bool]) -> Order | None:
    """Parse ``order``, such as ``{"count": "desc"}``; return None if it is missing."""
    order = args.take(
        "order",
        'an object such as {"count": "desc"}',
        lambda value: (
            isinstance(value, dict)
            and len(value) == 1
            and all(allowed(key) and word in ("asc", "desc") for key, word in value.items())
        ),
    )
    if order is None:
        return None
    key, word = next(iter(order.items()))
    return Order(key, ascending=word == "asc")


def too_many(args: Arguments) -> SearchError:
    """Return the error for a reply with more than ``MAX_BUCKETS`` buckets."""
    return args.error(f"makes more than {MAX_BUCKETS} buckets")


def bucket_reply(
    head: list[Any], numbers: DocumentNumbers, subs: Sequence[Aggregation]
) -> list[Any]:
    return [*head, b"docCount", len(numbers), *sub_replies(numbers, subs)]


def sub_replies(numbers: DocumentNumbers, subs: Sequence[Aggregation]) -> list[Any]:
    spend(STEPS_PER_BUCKET * (1 + len(subs)))
    return [part for sub in subs for part in (sub.name, sub.compute(numbers))]


def rfc3339(ms: float) -> bytes:
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return b""
    return moment.isoformat(timespec="milliseconds").replace(".000+", "+").replace(
        "+00:00", "Z"
    ).encode()  # fmt: skip


def group_documents(
    numbers: DocumentNumbers,
    column: dict[int, tuple[Any, ...]],
    absent: Any,
    key: Callable[[Any], Any],
) -> Groups:
    """Group documents by the keys of their values. A document is at most once in each group."""
    groups: Groups = {}
    without = () if absent is None else (absent,)
    spend(_STEPS_PER_DOCUMENT * len(numbers))
    for at in numbers:
        for group in dict.fromkeys(key(value) for value in column.get(at, without)):
            if group is not None:
                groups.setdefault(group, []).append(at)
    return groups


def buckets_reply(buckets: list[list[Any]], keyed: bool) -> list[Any]:
    """Return the buckets as a list or, if ``keyed`` is true, as a map from keys to buckets."""
    if not keyed:
        return [b"buckets", buckets]
    return [b"buckets", [part for each in buckets for part in (each[1], each[2:])]]
