"""The vendor's search: indexes over JSON, hash and string keys, filters, scores, aggregations.

``indexes`` follow the changes of a database, ``index`` holds one index; ``schema``, ``documents``
and ``analysis`` say what a key becomes in it, ``postings`` keep that; ``filters`` read the filter
language into ``clauses``, which find and score; ``queries`` order and show, ``aggregation`` sums up;
``views`` are what a test sees. Commands only read arguments and shape replies. Nothing here is
imported before a search command first comes.

Why not Tantivy itself, on which the service stands and which has maintained bindings? Tried with
tantivy 0.27 on one machine:

- What it would bring, agreement, is to be had without it: of 1,000 generated queries all find the
  same documents with the same scores (with slop: the same documents, for two words; longer phrases
  are told in ``clauses.Phrase``), and all characters of the first plane and the stemmers of all 18
  languages agree. The tests go on comparing.
- A write that can be found costs 13.7 ms there (a commit and a reload), 0.1 ms here at 100,000
  documents; a first index with one document 13 ms there. Tests write one document and search.
  10,000 documents take 0.5 s there, 0.4 s of processor time here.
- Score functions by fields, facets as aggregations, negative boosts and marking whole values are
  not in the bindings. A rollback is a new index there; here a copy of a dictionary.

Stemming is done by PyStemmer: the same Snowball algorithms, in C, with wheels for every platform.
"""
