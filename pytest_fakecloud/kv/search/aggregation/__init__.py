"""Aggregations: metrics and buckets computed from the documents that match a filter.

``parse_aggregations()`` parses the language ``{alias: {operator: {...}, "$aggs": {...}}}``.
"""

from __future__ import annotations

from typing import Any

from ..index import SearchIndex
from ..schema import SearchError
from .buckets import BUCKETS
from .metrics import METRICS
from .request import Aggregation, Arguments


def parse_aggregations(
    index: SearchIndex, asked: dict[str, Any], is_top: bool = True
) -> list[Aggregation]:
    """Return the aggregations in a request; raise `SearchError` if one is invalid."""
    return [_read(index, alias, wanted, is_top) for alias, wanted in asked.items()]


def _read(index: SearchIndex, alias: str, wanted: Any, is_top: bool) -> Aggregation:
    if not isinstance(wanted, dict):
        # This is the vendor's error message.
        raise SearchError(f"Aggregation '{alias}' must be a JSON object")
    operators = [key for key in wanted if key != "$aggs"]
    if len(operators) != 1:
        raise SearchError(f"Aggregation '{alias}' must have exactly one operator")
    operator = operators[0]
    given = wanted[operator]
    if operator not in METRICS and operator not in BUCKETS:
        raise SearchError(f"Aggregation '{alias}' has unknown operator '{operator}'")
    if not isinstance(given, dict):
        raise SearchError(f"Aggregation '{alias}' operator '{operator}' must be a JSON object")
    args = Arguments(alias, operator, given)
    if operator in METRICS:
        if "$aggs" in wanted:
            raise args.error("cannot be used with $aggs")
        metric = METRICS[operator](index, args)
        args.reject_rest()
        return Aggregation(alias, metric)
    below = wanted.get("$aggs", {})
    if not isinstance(below, dict):
        raise SearchError(f"Aggregation '{alias}' $aggs must be a JSON object")
    if operator == "$facet" and ("$aggs" in wanted or not is_top):
        raise args.error("cannot be used with $aggs")
    subs = parse_aggregations(index, below, is_top=False)
    compute = BUCKETS[operator](index, args, subs)
    args.reject_rest()
    return Aggregation(alias, compute)
