"""Readers of requests: the namespace in the path, and the JSON objects in the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from ...http.messages import Request
from ...http.readers import decode_segment
from .. import errors
from ..fields import Fields
from ..settings import VectorLimits


def namespace_of(request: Request) -> str:
    return decode_segment(request.params.get("namespace", ""))


def fields_of(request: Request, limits: VectorLimits, what: str = "The request body") -> Fields:
    return Fields(_json(request), limits, what)


def fields_or_ids(request: Request, limits: VectorLimits) -> Fields:
    """Return the fields of a body, which can also be a bare array of ids."""
    body = _json(request)
    return Fields({"ids": body} if isinstance(body, list) else body, limits)


def items_of(request: Request, limits: VectorLimits, what: str) -> Iterator[Fields]:
    """Return the fields of each object of an array, or of a single object."""
    body = _json(request)
    if not isinstance(body, list):
        return iter([Fields(body, limits, what)])
    errors.check_limit("Batch size", len(body), limits.vectors_per_call)
    return (Fields(item, limits, what) for item in body)


def _json(request: Request) -> Any:
    if not request.body.strip():
        raise errors.bad_request("The request body is empty, expected JSON")
    try:
        return orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"The request body is not valid JSON: {error}") from None
