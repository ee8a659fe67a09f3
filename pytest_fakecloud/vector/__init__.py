"""A fake of Upstash Vector: dense, sparse and hybrid vectors under string ids, queried by
similarity.

Start with ``routes`` (HTTP), then ``engine`` (the operations of the index), ``engine.namespace`` (its
rows), ``similarity.dense`` (how rows are scored), ``engine.ranking`` (from query to hits), ``filter``
(metadata filters) and ``fake`` (the object that the fixture returns).

Known differences from the service:

- The service's dense search is approximate. This one is exact, unless ``recall``, ``filter_budget``
  or ``shuffle_ties`` is set. Hits with equal scores are in insertion order.
- In the service, queries and counts see a change after a moment. Here they see it immediately,
  unless ``ready_after``, ``ready_after_reads`` or ``holding()`` delays it.
- Text is embedded by hashing words, not by a model: texts that share words are close, texts that
  mean the same are not.
- ``indexSize`` counts only the bytes of the vectors.
- An index can be created without a dimension; the first vector determines it.
- An unknown field (``top_k`` for ``topK``) is rejected; the service may ignore it.
"""

UPSERTS = ("upsert", "upsert-data")
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
"""Names of routes, which reports can import from here without NumPy."""
