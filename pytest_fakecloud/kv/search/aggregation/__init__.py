"""Aggregations: numbers and buckets made of the documents a filter finds."""
