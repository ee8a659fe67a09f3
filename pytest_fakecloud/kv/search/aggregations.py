"""Parses aggregations: ``{alias: {operator: {...}, "$aggs": {...}}}``."""

from __future__ import annotations

from typing import Any

from .buckets import BUCKETS, Aggregations
from .composite import composite
from .index import SearchIndex
from .metrics import METRICS, Arguments, Compute
from .schema import SearchError

_BUCKETS = {**BUCKETS, "$composite": composite}


def parse_aggregations(
    index: SearchIndex, request: dict[str, Any], is_top: bool = True
) -> Aggregations:
    """Return the aggregations in a request by alias; raise `SearchError` if one is invalid."""
    return {alias: _read(index, alias, part, is_top) for alias, part in request.items()}


def _read(index: SearchIndex, alias: str, aggregation: Any, is_top: bool) -> Compute:
    if not isinstance(aggregation, dict):
        # This is the vendor's error message.
        raise SearchError(f"Aggregation '{alias}' must be a JSON object")
    operators = [key for key in aggregation if key != "$aggs"]
    if len(operators) != 1:
        raise SearchError(f"Aggregation '{alias}' must have exactly one operator")
    operator = operators[0]
    arguments = aggregation[operator]
    if operator not in METRICS and operator not in _BUCKETS:
        raise SearchError(f"Aggregation '{alias}' has unknown operator '{operator}'")
    if not isinstance(arguments, dict):
        raise SearchError(f"Aggregation '{alias}' operator '{operator}' must be a JSON object")
    args = Arguments(alias, operator, arguments)
    if operator in METRICS:
        if "$aggs" in aggregation:
            raise args.error("cannot be used with $aggs")
        compute = METRICS[operator](index, args)
    else:
        below = aggregation.get("$aggs", {})
        if not isinstance(below, dict):
            raise SearchError(f"Aggregation '{alias}' $aggs must be a JSON object")
        if operator == "$facet" and ("$aggs" in aggregation or not is_top):
            raise args.error("cannot be used with $aggs")
        compute = _BUCKETS[operator](index, args, parse_aggregations(index, below, is_top=False))
    args.reject_rest()
    return compute
