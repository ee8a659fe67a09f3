"""The vector index: dense, sparse and hybrid vectors under string ids, queried by similarity.

Start at ``engine`` (what the index does), then ``namespace`` (where its rows live),
``similarity``, ``sparse`` and ``fusion`` (how rows are scored), ``ranking`` (from query to hits),
``filter`` (which rows may match), ``routes`` (HTTP) and ``handle`` (what a test holds).

Where it is known to differ from the real service:

- The service's dense search is approximate; this one is exact, unless ``recall``, ``filter_budget``
  and ``shuffle_ties`` make it otherwise. Equal scores come in insertion order.
- The service's changes take a moment to be seen by queries and counts; here they are seen at once,
  unless ``ready_after``, ``ready_after_reads`` or ``hold_pending()`` delay them.
- Texts are embedded by hashes of their words, not by a model: texts that share words are near, texts
  that merely mean the same are not.
- ``indexSize`` counts the vectors' bytes only, and is not the size on a disk.
- An index may be made without a dimension and takes that of its first vector.
- A field that no command has (``top_k`` for ``topK``) is refused, where the service may ignore it.

What nobody outside knows about the service is listed as *decided here* in the module concerned.
"""
