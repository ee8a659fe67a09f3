"""Analysis, matches and scores, compared with Tantivy, on which the service is built.

``PYTEST_FAKECLOUD_EXAMPLES=500`` compares as many generated queries as when this was written.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from typing import Any

import pytest

from pytest_fakecloud.kv.algorithms.linear_regex import LinearRegex, RegexError
from pytest_fakecloud.kv.search.schema import LANGUAGES, Analyzer, analyzer
from tests.budget import EXAMPLES
from tests.kv.conftest import Run

from .conftest import Searching

tantivy = pytest.importorskip("tantivy")

CASES = 2 * EXAMPLES
WORDS = [
    "running", "runner", "runs", "shoe", "shoes", "boots", "connection", "connected", "connecting",
    "organization", "organize", "studies", "study", "national", "nationality", "red", "reader",
    "reading", "bass", "bases", "wireless", "wired", "guitar",
]  # fmt: skip


def chain(language: str | None) -> Any:
    builder = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(40))
        .filter(tantivy.Filter.lowercase())
    )
    if language is not None:
        builder = builder.filter(tantivy.Filter.stemmer(language))
    return builder.build()


class TestAnalysis:
    def test_every_character_of_the_first_plane(self) -> None:
        theirs, ours = chain(None), Analyzer(None)
        # Characters that are unknown to this Python are not letters for it.
        assigned = [
            chr(code)
            for code in [*range(0x20, 0xD800), *range(0xE000, 0x10000)]
            if unicodedata.category(chr(code)) != "Cn"
        ]
        for start in range(0, len(assigned), 200):
            text = " ".join(f"x{word}y" for word in assigned[start : start + 200])
            assert theirs.analyze(text) == list(ours.tokens(text)), hex(ord(assigned[start]))

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_every_language(self, language: str) -> None:
        theirs, ours = chain(language), analyzer(language)
        texts = {
            "arabic": "والكتاب المدرسة الطالبات يكتبون", "greek": "ανθρώπους σπίτια τρέχοντας",
            "russian": "книгами бегающий красивейшая", "tamil": "வீடுகள் மரங்கள் பாடல்கள்",
            "turkish": "kitapları evlerinden gözlükçülük", "german": "Häuser aufeinander schön",
            "french": "continuellement majestueuses généralités", "finnish": "taloissamme juoksevat",
        }  # fmt: skip
        sample = f"{texts.get(language, '')} " + " ".join(WORDS)
        assert list(ours.tokens(sample)) == theirs.analyze(sample)

    def test_long_words_are_dropped(self) -> None:
        text = f"a {'b' * 39} {'c' * 40} {'é' * 20} {'é' * 19}"
        tokens = [token for token in analyzer("english", False).tokens(text) if token is not None]
        assert tokens == chain(None).analyze(text) == ["a", "b" * 39, "é" * 19]


# -- queries ---------------------------------------------------------------------------------------


class Both:
    """The same texts in one of our indexes and in one of Tantivy's."""

    def __init__(self, run: Run, texts: list[str]) -> None:
        self.shop = Searching(run)
        run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT")
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("t", tokenizer_name="english")
        builder.add_text_field("key", stored=True, tokenizer_name="raw")
        self.schema = builder.build()
        index = tantivy.Index(self.schema)
        index.register_tokenizer("english", chain("english"))
        writer = index.writer(15_000_000, 1)
        for number, text in enumerate(texts):
            self.shop.put(f"p:{number}", {"t": text})
            writer.add_document(tantivy.Document(t=text, key=f"p:{number}"))
        writer.commit()
        index.reload()
        self.searcher = index.searcher()

    def ours(self, filter: Any) -> dict[str, float]:
        return self.shop.scores(filter)

    def theirs(self, query: Any) -> dict[str, float]:
        hits = self.searcher.search(query, 1000).hits
        return {self.searcher.doc(at)["key"][0]: score for score, at in hits}


def a_text(chance: random.Random, most: int = 60) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def a_pair(chance: random.Random, both: Both) -> tuple[dict[str, Any], Any]:
    query, schema = tantivy.Query, both.schema
    stem = analyzer("english").token
    word = chance.choice(WORDS)
    if chance.random() < 0.3:
        word = word[:-1] + chance.choice("abs")
    kind = chance.choice(["term", "phrase", "slop", "prefix", "fuzzy", "boost", "bool"])
    if kind == "term":
        return {"t": {"$eq": word}}, query.term_query(schema, "t", stem(word))
    if kind == "boost":
        inner = query.term_query(schema, "t", stem(word))
        return {"t": {"$eq": word, "$boost": 2.5}}, query.boost_query(inner, 2.5)
    if kind == "fuzzy":
        distance, swap, prefix = chance.randint(1, 2), chance.random() < 0.5, chance.random() < 0.5
        option = {"distance": distance, "transpositionCostOne": swap, "prefix": prefix}
        return (
            {"t": {"$fuzzy": {"value": word, **option}}},
            query.fuzzy_term_query(schema, "t", stem(word), distance, swap, prefix),
        )
    # Phrases of three or more words with slop are not compared: see ``clauses.Phrase``.
    words = chance.sample(WORDS, k=2 if kind == "slop" else chance.randint(2, 3))
    stems = [stem(word) for word in words]
    if kind == "bool":
        must, should, must_not = (
            [{"t": {"$eq": word}} for word in chance.sample(WORDS, k=2)] for _ in range(3)
        )
        parts = [
            *((tantivy.Occur.Must, query) for query in must),
            *((tantivy.Occur.Should, query) for query in should),
            *((tantivy.Occur.MustNot, query) for query in must_not[:1]),
        ]
        theirs = [
            (occur, query.term_query(schema, "t", stem(clause["t"]["$eq"])))
            for occur, clause in parts
        ]
        filter = {"$must": must, "$should": should, "$mustNot": must_not[:1]}
        return filter, query.boolean_query(theirs)
    text = " ".join(words)
    if kind == "prefix":
        begun = stems[-1][: chance.randint(3, 5)]
        # The prefix is stemmed as well, so only prefixes that stay the same are compared.
        begun = begun if stem(begun) == begun else stems[-1]
        value = " ".join([*words[:-1], begun])
        if stem(begun) != begun:
            return {"t": {"$eq": word}}, query.term_query(schema, "t", stem(word))
        return (
            {"t": {"$phrase": {"value": value, "prefix": True}}},
            query.phrase_prefix_query(schema, "t", [*stems[:-1], begun]),
        )
    slop = chance.randint(1, 4) if kind == "slop" else 0
    option = {"slop": slop} if slop else {}
    return (
        {"t": {"$phrase": {"value": text, **option}}},
        query.phrase_query(schema, "t", stems, slop),
    )


def test_queries_find_the_same_with_the_same_scores(run: Run) -> None:
    chance = random.Random(19)
    both = Both(run, [a_text(chance) for _ in range(150)])
    different = []
    for _ in range(CASES):
        filter, query = a_pair(chance, both)
        ours, theirs = both.ours(filter), both.theirs(query)
        # The frequency of a phrase with slop is counted differently.
        is_loose = "slop" in json.dumps(filter)
        scored = ours.keys() == theirs.keys() if is_loose else ours == pytest.approx(theirs, 1e-4)
        if not scored:
            different.append((json.dumps(filter), ours.keys() ^ theirs.keys(), ours, theirs))
    assert not different, f"{len(different)} of {CASES}: {different[0]}"


# -- regular expressions ---------------------------------------------------------------------------

ATOMS = [
    "a", "b", "K", "é", "ß", "ω", "日", "1", "_", " ", "-", "]", "}", ".", r"\d", r"\w", r"\s", r"\D",
    r"\p{Lu}", r"\p{Nd}", r"\P{Greek}", r"\pP", r"\p{Nope}", r"\x61", r"\x{e9}", r"\u0061", r"\n",
    r"\.", r"\_", r"\q", r"\1", r"\b", r"\B", r"\A", r"\z", r"\Z", "^", "$", r"\<", r"\b{start}",
    "[ab]", "[^a]", "[a-c]", "[]a]", "[a-]", "[[:alpha:]]", "[[:^digit:]]", "[[:nope:]]", "[a-c&&[^b]]",
    "[a-k--[b]]", "[a-c~~b]", "[a&&b]", "[a-d", "{", "[z-a]", r"[\b]", "#", "&", "~",
]  # fmt: skip
IN_CLASSES = [
    "a", "b", "K", "é", "-", "&&", "--", "~~", "]", "^", r"\d", r"\]", r"\-", "a-c", "x-z", "[:alpha:]",
    "[:^upper:]", " ", "#", "日", "[a-k]",
]  # fmt: skip
OPENINGS = [
    "(",
    "(?:",
    "(?i:",
    "(?P<n>",
    "(?<m>",
    "(?s:",
    "(?-i:",
    "(?x:",
    "(?U:",
    "(?is-x:",
    "(?=",
]
FLAGS = ["(?i)", "(?s)", "(?x)", "(?-i)", "(?i-s)", "(?ii)", "(?)", "(?z)"]
REPETITIONS = [
    "*",
    "+",
    "?",
    "{2}",
    "{1,2}",
    "{ 2 }",
    "{,2}",
    "{0}",
    "**",
    "*?",
    "{1}?",
    "{2}?",
    "{2,1}",
]
TERMS = [
    "", "a", "b", "k", "K", "\u212a", "ab", "aab", "aBa", "é", "É", "ß", "ss", "ω", "Ω", "日", "1", "٣",
    "_", " ", "-", "]", "}", ".", "\n", "a b", "a1", "^", "#", "&", "~", "bb", "x", ":", "ba",
    "Ⓐ", "\u0301",
]  # fmt: skip


def a_pattern(chance: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(chance.randint(0 if depth < 2 else 1, 3)):
        kind = chance.random()
        if kind < 0.5:
            part = chance.choice(ATOMS)
        elif kind < 0.65:
            members = chance.choices(IN_CLASSES, k=chance.randint(1, 4))
            part = f"[{chance.choice(['', '^'])}{''.join(members)}]"
        elif kind < 0.8 and depth:
            part = f"{chance.choice(OPENINGS)}{a_pattern(chance, depth - 1)})"
        else:
            part = chance.choice([*FLAGS, "|", "|"])
        # Tantivy takes seconds to compile repetitions of large classes.
        # A lazy repetition of an empty group, which it simplifies, is not compared.
        repetitions = REPETITIONS[:9] if part[-1] == ")" else REPETITIONS
        repeats = chance.random() < 0.3 and not re.search(r"\\[dDwpPs]|\^|\.", part)
        parts.append(part + (chance.choice(repetitions) if repeats else ""))
    return "".join(parts)


def test_expressions_are_rejected_or_find_the_same_terms() -> None:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("t", stored=True, tokenizer_name="raw")
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    for term in TERMS:
        writer.add_document(tantivy.Document(t=term))
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def theirs(pattern: str) -> set[str] | None:
        try:
            query = tantivy.Query.regex_query(schema, "t", pattern)
        except ValueError as error:
            return {"too large"} if "size limit" in str(error) else None
        return {searcher.doc(at)["t"][0] for _, at in searcher.search(query, 1000).hits}

    def ours(pattern: str) -> set[str] | None:
        try:
            regex = LinearRegex(pattern, tantivy=True)
        except RegexError:
            return None
        return set(filter(regex.fullmatch, TERMS))

    chance = random.Random(7)
    patterns = [a_pattern(chance) for _ in range(10 * CASES)]
    compared = [(pattern, theirs(pattern), ours(pattern)) for pattern in patterns]
    different = [
        (pattern, found, expected)
        for pattern, expected, found in compared
        if expected not in (found, {"too large"})
        # Tantivy joins the classes of alternatives, of which one may have no characters.
        and not (found is None and "|" in pattern and re.search("&&|--|~~", pattern))
    ]
    assert different == []
    assert sum(bool(matching) for _, matching, _ in compared) > CASES
