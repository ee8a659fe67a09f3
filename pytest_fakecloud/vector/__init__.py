"""The vector index: dense, sparse and hybrid vectors under string ids, queried by similarity.

Start at ``engine`` (what the index does), then ``namespace`` (where its rows live), ``similarity``,
``sparse`` and ``fusion`` (how rows are scored), ``filter`` (which rows may match), ``routes``
(HTTP) and ``handle`` (what a test holds).
"""
