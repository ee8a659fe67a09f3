"""The vendor's search: indexes over JSON, hash and string keys, filters, scores, aggregations.

``indexes`` follow the changes of a database, ``index`` holds one index; ``schema``, ``documents``
and ``analysis`` say what a key becomes in it, ``postings`` keep that; ``filters`` read the filter
language into ``clauses``, which find and score; ``aggregation`` sums up. Commands only read
arguments and shape replies. Nothing here is imported before a search command first comes.
"""
