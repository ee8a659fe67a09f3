"""The fields that ``Found.where()`` accepts, by the class of the items, for type checkers.

``tests/test_shapes.py`` compares them with the tables used at run time.
"""

from __future__ import annotations

from typing import TypedDict


class RecordWhere(TypedDict, total=False):
    """The fields of a broker's record."""

    topic: object
    partition: object
    offset: object
    timestamp: object
    key: object
    value: object
    headers: object


class OffsetWhere(TypedDict, total=False):
    """The fields of a committed offset."""

    topic: object
    partition: object
    offset: object


class MemberWhere(TypedDict, total=False):
    """The fields of a member of a consumer group."""

    name: object
    state: object
    topics: object
    assignment: object
    position: object
    delivered: object
    config: object


class SearchWhere(TypedDict, total=False):
    """The fields of a search."""

    command: object
    index: object
    filter: object
    keys: object
    total: object
    pending: object


class HandleWhere(TypedDict, total=False):
    """The fields of a fake."""

    name: object
    fixture: object
    service: object
    token: object
    url: object
    closed: object


class ProblemWhere(TypedDict, total=False):
    """The fields of a strict-mode violation."""

    kind: object
    text: object
    facts: object
    exception: object


class FailureWhere(TypedDict, total=False):
    """The fields of a run of ``every_failure``."""

    held: object
    number: object
    fault: object
    call: object
    exception: object
    broken: object
