"""Aggregations: metrics and buckets computed from the documents that match a filter."""
