"""Bucket aggregations, which group documents by a value, then count and aggregate each group.

Replies start with the word ``buckets`` (except facets), which lets clients distinguish them from
metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..index import SearchIndex
from .facets import facet
from .grouping import Compute
from .histograms import date_histogram, histogram
from .ranges import ranges
from .request import Aggregation, Arguments
from .terms import terms

BUCKETS: dict[str, Callable[[SearchIndex, Arguments, Sequence[Aggregation]], Compute]] = {
    "$terms": terms,
    "$range": ranges,
    "$histogram": histogram,
    "$dateHistogram": date_histogram,
    "$facet": facet,
}
"""Functions that build the bucket aggregations. All except ``$facet`` can contain aggregations."""
