"""The cost of search as an index grows, compared with Tantivy, and its cost for tests that never
search.

Run ``python -m benchmarks.search``. Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from string import ascii_lowercase
from time import perf_counter
from typing import Any

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.settings import KVConfig

from .timing import compare, line

SMALL, LARGE = 1_000, 100_000
DOCUMENTS, DISTINCT = 1_500, 20
"""Number of documents for the comparison with Tantivy, and number of words that occur in only one
of them.
"""
WORDS = 5_000
QUERIES: dict[str, tuple[Any, ...]] = {
    "one rare word": ({"t": {"$eq": "w4999"}},),
    "a phrase": ({"t": {"$phrase": "w4000 w4001"}},),
    "$fuzzy": ({"t": {"$fuzzy": "w4321x"}},),
    "$smart of two words": ({"t": "w4000 w4999"},),
    "a range of 1 %": ({"n": {"$gte": 0.5, "$lt": 0.51}},),
    "all, ordered by a field": ({}, b"ORDERBY", b"n"),
}


class Filled:
    """An engine with documents and an index."""

    def __init__(self, documents: list[bytes]) -> None:
        self.engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        self.session = self.engine.session()
        self.run(b"SEARCH.CREATE", b"i", b"ON", b"STRING", b"PREFIX", b"1", b"p:", b"SCHEMA", b"t",
                 b"TEXT", b"n", b"F64", b"FAST", b"k", b"KEYWORD")  # fmt: skip
        self.documents = documents
        self.writes = 0.0
        begun = perf_counter()
        for number, document in enumerate(self.documents):
            self.run(b"SET", b"p:%d" % number, document)
        self.writes = perf_counter() - begun
        begun = perf_counter()
        self.run(b"SEARCH.WAITINDEXING", b"i")
        self.indexing = perf_counter() - begun

    def run(self, *words: bytes) -> Any:
        return self.engine.execute(self.session, list(words))

    def query(self, filter: Any, *options: bytes) -> Callable[[], object]:
        text = json.dumps(filter).encode()
        return lambda: self.run(b"SEARCH.QUERY", b"i", text, *options)

    def rewrite(self) -> Callable[[], object]:
        """Return a function that makes one write and one search that finds it."""
        numbers = count()
        size = len(self.documents)
        text = b'{"t":{"$eq":"w4999"}}'

        def both() -> None:
            at = next(numbers) * 7919 % size
            self.run(b"SET", b"p:%d" % at, self.documents[at - 1])
            self.run(b"SEARCH.COUNT", b"i", text)

        return both


def usual(size: int) -> list[bytes]:
    """Return documents whose words are as frequent as in a language: few are common, most are rare."""
    chance = random.Random(1)
    return [
        json.dumps(
            {
                "t": " ".join(f"w{min(int(chance.expovariate(0.001)), WORDS)}" for _ in range(12)),
                "n": chance.random(),
                "k": f"k{chance.randint(0, 20)}",
            }
        ).encode()
        for _ in range(size)
    ]


def best(call: Callable[[], object], times: int = 5) -> float:
    """Return the shortest time of several calls in microseconds, because one call at 100,000
    documents may take 50 ms.
    """
    call()
    taken = []
    for _ in range(times):
        begun = perf_counter()
        call()
        taken.append(perf_counter() - begun)
    return min(taken) * 1e6


def growth() -> list[bool]:
    """Measure every kind of query, and a write, with a thousand and with a hundred thousand
    documents.
    """
    small, large = Filled(usual(SMALL)), Filled(usual(LARGE))
    for filled in (small, large):
        count = len(filled.documents)
        print(
            f"     {count:,} documents: SET {filled.writes / count * 1e6:.1f} us, indexing "
            f"{filled.indexing / count * 1e6:.0f} us a document"
        )
    held = [
        line(
            f"indexing a document at {LARGE:,} against {SMALL:,}",
            (large.indexing / LARGE) / (small.indexing / SMALL),
            2.0,
        )
    ]
    for name, (filter, *options) in QUERIES.items():
        quick, slow = (best(filled.query(filter, *options)) for filled in (small, large))
        label = f"{name}: {quick / 1000:.2f} ms and {slow / 1000:.2f} ms"
        # The work grows with the number of hits, so the limit is a little more than a hundred.
        held.append(line(label, slow / quick, 300.0))
    quick, slow = (best(filled.rewrite(), 20) for filled in (small, large))
    label = f"a write and a search that sees it: {quick:.0f} us and {slow:.0f} us"
    held.append(line(label, slow / quick, 20.0))
    return held


def beside_tantivy() -> list[bool]:
    """Compare indexing, and ``$fuzzy`` among many distinct terms, with Tantivy."""
    try:
        import tantivy
    except ImportError:
        print("     tantivy is not installed: no comparison with it")
        return []
    chance = random.Random(2)
    texts = [" ".join(_word(chance) for _ in range(DISTINCT)) for _ in range(DOCUMENTS)]

    def ours() -> Filled:
        return Filled([json.dumps({"t": text}).encode() for text in texts])

    def theirs() -> Any:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("t", tokenizer_name="en_stem")
        index = tantivy.Index(builder.build())
        writer = index.writer(heap_size=50_000_000, num_threads=1)
        for text in texts:
            writer.add_document(tantivy.Document(t=text))
        writer.commit()
        index.reload()
        return index

    ratios = []
    table = compare({"here": ours, "tantivy": theirs}, rounds=5)
    print(f"     indexing {DOCUMENTS:,} documents of {DISTINCT} distinct words")
    print(table)
    ratios.append(("indexing", table.ratio("here", "tantivy"), 5.0))
    filled, index = ours(), theirs()
    searcher = index.searcher()
    for distance in (1, 2):
        word = _word(chance)
        fuzzy_query = tantivy.Query.fuzzy_term_query(index.schema, "t", word, distance, True, False)
        filter = json.dumps({"t": {"$fuzzy": {"value": word, "distance": distance}}}).encode()
        table = compare(
            {
                "here": partial(filled.run, b"SEARCH.COUNT", b"i", filter),
                "tantivy": partial(searcher.search, fuzzy_query, 10),
            },
            rounds=9,
        )
        print(f"     one $fuzzy of distance {distance} among {DOCUMENTS * DISTINCT:,} terms")
        print(table)
        ratios.append((f"$fuzzy of distance {distance}", table.ratio("here", "tantivy"), 50.0))
    return [line(f"{name} against tantivy", ratio, most) for name, ratio, most in ratios]


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(ascii_lowercase, k=8))


def without_search() -> list[bool]:
    """Measure a write without an index and beside an index of other keys, and the imports of an
    engine.
    """
    engines = {
        name: KVEngine(Timekeeper(), Ids(1), KVConfig())
        for name in ("no index", "an index of other keys")
    }
    sessions = {name: engine.session() for name, engine in engines.items()}
    create = b"SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA t TEXT".split()
    engines["an index of other keys"].execute(sessions["an index of other keys"], create)

    def write(name: str) -> Callable[[], object]:
        engine, session = engines[name], sessions[name]
        return lambda: engine.execute(session, [b"SET", b"key", b"value"])

    table = compare({name: write(name) for name in engines}, rounds=15)
    print(table)
    code = (
        "import sys; from pytest_fakecloud.kv import fake; "
        "print([n for n in sys.modules if 'kv.search' in n or 'Stemmer' in n])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    print(f"     modules of search that a key-value server imports: {completed.stdout.strip()}")
    ratio = table.ratio("an index of other keys", "no index")
    return [line("SET beside an index of other keys", ratio, 2.0), completed.stdout.strip() == "[]"]


def main() -> int:
    return 0 if all([*without_search(), *beside_tantivy(), *growth()]) else 1


if __name__ == "__main__":
    sys.exit(main())
