"""Read bulk requests, which select messages, dead letters or runs by ids or filters.

Decided here: the sources disagree about the ``count`` of a cancellation. It limits how many of the
messages or runs that match are cancelled, oldest first, as live tests of the JavaScript client expect,
although a page of the vendor says that it is ignored. It is ignored if the request lists ids. Without
it, all that match are cancelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...http.messages import Request
from ..engine.bulk_actions import BulkAction
from ..errors import bad_request, not_found
from ..wire import records
from ..wire.values import read_flag
from .requests import query_of, read_json

_ID = r"(?a)(?:(?:msg|msd|wfr)_[\w.-]+|\d+-\d+)\Z"
"""Matches ids of messages, of workflow runs and of dead letters."""
UNLIMITED = 2**62
"""The largest ``count`` of a cancellation."""
_IDENTIFIED = {"messageIds": "message", "dlqIds": "dlq message", "workflowRunIds": "workflow run"}
"""For each field for ids in a bulk request, the kind of object that the ids identify."""


def bulk_object(request: Request, ids: str) -> dict[str, Any]:
    """Return the JSON object of a bulk request; raise a 400 error for any other body.

    A single id (bare or as a JSON string) or an array of ids is treated as an object with ``ids``,
    if the values look like ids.
    """
    text = request.body.strip()
    if re.match(_ID, text.decode("latin-1")):
        return {ids: text.decode("latin-1")}
    value = read_json(text, "body") if text else {}
    if isinstance(value, dict):
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(value, str) and re.match(_ID, value) for value in values):
        raise bad_request(f"invalid body: expected a JSON object, or only {ids}")
    return {ids: values}


def bulk_filters(request: Request, ids: str, *, keep_empty: bool = False) -> list[tuple[str, str]]:
    """Return the filters in the query and in the JSON body.

    An empty filter matches nothing. Without ``keep_empty``, the empty filters of the query are
    ignored. Raises a 404 error for a path that ends in an empty id, such as ``/v2/messages/``, because
    a client with an empty id would otherwise change everything.
    """
    if request.path.endswith("/"):
        raise not_found(_IDENTIFIED[ids], "with an empty id")
    pairs = [pair for pair in query_of(request) if keep_empty or pair[1]]
    return pairs + records.pairs_of(bulk_object(request, ids))


def split_async(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], bool]:
    """Return the filters of a cancellation without ``async``, and whether that is true."""
    flags = [read_flag(value, name) for name, value in pairs if name == "async"]
    return [pair for pair in pairs if pair[0] != "async"], any(flags)


def has_id_field(request: Request, ids: str) -> bool:
    """Return whether a request has a field for ids. Such a request without filters selects nothing."""
    body = bulk_object(request, ids)
    names = (ids, ids.removesuffix("s"))
    return any(name in body or request.query(name) is not None for name in names)


def lists_ids(filters: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a bulk request lists ids, so that its other filters are ignored."""
    return any(name in _IDENTIFIED for name in filters)


def cancelled_record(action: BulkAction, *, asynchronous: bool) -> dict[str, object]:
    """Return the response to a cancellation by filters, with its id if it is asynchronous."""
    record: dict[str, object] = {"cancelled": action.total}
    return record | {"actionId": action.id} if asynchronous else record
