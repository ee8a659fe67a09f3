"""Filters, compared with a naive reference that examines one document at a time without an index.

``PYTEST_FAKECLOUD_EXAMPLES=5000`` runs as many cases as when this was written.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

import pytest
from Stemmer import Stemmer

from tests.budget import EXAMPLES
from tests.kv.conftest import Run

from .conftest import Searching

CASES = 4 * EXAMPLES
PER_BATCH = 100
WORDS = [
    "run", "running", "runner", "shoe", "shoes", "bass", "base", "bases", "hat", "hats", "that",
    "chat", "wire", "wired", "wireless", "red", "bed", "reads", "reading", "a", "ab", "abc", "abcd",
    "acbd", "badc", "experiment", "experiments",
]  # fmt: skip
PATHS = ["/a", "/a/b", "/a/b/c", "/a/c", "/d", "/d/e"]
BRANDS = ["acme", "bolt", "crown", "Acme", "z"]
DATES = [f"2026-0{month}-1{day}T00:00:0{day}Z" for month in (1, 2, 3) for day in (1, 5, 9)]
COMPARE = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
STEM = Stemmer("english").stemWord

SCHEMA = (
    "title TEXT plain TEXT NOSTEM code TEXT NOTOKENIZE price F64 FAST stock U64 sold BOOL "
    "added DATE FAST brand KEYWORD place FACET"
)


# -- the reference ---------------------------------------------------------------------------------


def values(document: dict[str, Any], field: str) -> list[Any]:
    value = document.get(field, [])
    return value if isinstance(value, list) else [value]


def tokens(field: str, value: str) -> list[str]:
    if field == "code":
        return [value]
    words = re.findall(r"[a-z0-9]+", value.lower())
    return words if field == "plain" else [STEM(word) for word in words]


def edits(first: str, second: str, swap: int) -> int:
    table = [[i + j for j in range(len(second) + 1)] for i in range(len(first) + 1)]
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            cost = min(
                table[i - 1][j] + 1,
                table[i][j - 1] + 1,
                table[i - 1][j - 1] + (first[i - 1] != second[j - 1]),
            )
            if i > 1 and j > 1 and first[i - 1] == second[j - 2] and first[i - 2] == second[j - 1]:
                cost = min(cost, table[i - 2][j - 2] + swap)
            table[i][j] = cost
    return table[-1][-1]


def near(word: str, token: str, distance: int, swap: bool, prefix: bool) -> bool:
    cost = 1 if swap else 2
    if edits(word, token, cost) <= distance:
        return True
    if not prefix:
        return False
    # A prefix counts only if it is not closer to a prefix of the word than to the word.
    for begun in (token[:end] for end in range(1, len(token))):
        away = [edits(word[:end], begun, cost) for end in range(len(word) + 1)]
        if away[-1] <= distance and away[-1] == min(away):
            return True
    return False


def phrase(field: str, text: str, wanted: list[str], slop: int = 0, prefix: bool = False) -> bool:
    there = tokens(field, text)

    def fits(at: int, nth: int) -> bool:
        if prefix and nth == len(wanted) - 1:
            return there[at].startswith(wanted[nth])
        return there[at] == wanted[nth]

    def place(nth: int, last: int | None, paid: int) -> bool:
        if nth == len(wanted):
            return True
        for at in range(len(there)):
            moved = 0 if last is None else abs(at - nth - last)
            if fits(at, nth) and paid + moved <= slop and place(nth + 1, at - nth, paid + moved):
                return True
        return False

    return bool(wanted) and place(0, None, 0)


def text_holds(field: str, text: str, word: str, operand: Any) -> bool:
    if word == "$regex":
        return any(re.fullmatch(operand, token, re.IGNORECASE) for token in tokens(field, text))
    assert word in ("$eq", "$phrase")
    options = {**operand} if isinstance(operand, dict) else {"value": operand}
    return phrase(field, text, tokens(field, options.pop("value")), **options)


def field_holds(document: dict[str, Any], field: str, operator: str, operand: Any) -> bool:
    stored = values(document, field)
    if operator == "$in":
        return any(field_holds(document, field, "$eq", choice) for choice in operand)
    if field not in ("title", "plain", "code"):
        if field == "place":
            return any(value == operand or value.startswith(operand + "/") for value in stored)
        return any(value == operand for value in stored)
    if operator == "$fuzzy":
        condition = operand if isinstance(operand, dict) else {"value": operand}
        options = {"distance": 1, "transpositionCostOne": True, "prefix": False, **condition}
        distance, swap, prefix = (options[name] for name in [*options][:3])
        there = [token for text in stored for token in tokens(field, text)]
        return all(
            any(near(word, token, distance, swap, prefix) for token in there)
            for word in tokens(field, options["value"])
        )
    if operator == "$smart":
        if operand.startswith('"'):
            return field_holds(document, field, "$eq", operand.strip('"'))
        wanted = tokens(field, operand)
        there = [token for text in stored for token in tokens(field, text)]
        return any(
            near(word, token, 1, True, nth == len(wanted) - 1)
            for nth, word in enumerate(wanted)
            for token in there
        )
    return any(text_holds(field, text, operator, operand) for text in stored)


def range_holds(document: dict[str, Any], field: str, ranges: dict[str, Any]) -> bool:
    return any(
        all(COMPARE[word](value, bound) for word, bound in ranges.items())
        for value in values(document, field)
    )


def holds(document: dict[str, Any], filter: dict[str, Any]) -> bool:
    must: list[bool] = []
    should: list[bool] | None = None
    for key, value in filter.items():
        if key in ("$must", "$and"):
            must += [holds(document, part) for part in value]
        elif key in ("$should", "$or"):
            should = [holds(document, part) for part in value]
        elif key == "$mustNot":
            if any(holds(document, part) for part in value):
                return False
        elif key != "$boost":
            must.append(one_field(document, key, value))
    has_must = any(not key.startswith("$") or key in ("$must", "$and") for key in filter)
    if has_must:
        return all(must)
    if should is not None:
        return any(should)
    return not any(key != "$boost" for key in filter)


def one_field(document: dict[str, Any], field: str, value: Any) -> bool:
    if not isinstance(value, dict):
        is_text = field in ("title", "plain", "code")
        return field_holds(document, field, "$smart" if is_text else "$eq", value)
    ranges = {key: operand for key, operand in value.items() if key in COMPARE}
    others = {
        key: operand for key, operand in value.items() if key not in ranges and key != "$boost"
    }
    return all(field_holds(document, field, *pair) for pair in others.items()) and (
        not ranges or range_holds(document, field, ranges)
    )


# -- cases -----------------------------------------------------------------------------------------


def a_text(chance: random.Random, most: int = 6) -> str:
    words = chance.choices(WORDS, k=chance.randint(1, most))
    words[0] = words[0].capitalize() if chance.random() < 0.3 else words[0]
    return chance.choice([" ", ", ", "-"]).join(words)


def some(chance: random.Random, make: Any) -> Any:
    return make() if chance.random() < 0.8 else [make() for _ in range(chance.randint(1, 3))]


def a_document(chance: random.Random) -> dict[str, Any]:
    made = {
        "title": some(chance, lambda: a_text(chance)),
        "plain": some(chance, lambda: a_text(chance)),
        "code": a_text(chance, 2),
        "price": some(chance, lambda: chance.choice([1, 2.5, 3, 10.25, -4])),
        "stock": chance.randint(0, 5),
        "sold": chance.random() < 0.5,
        "added": chance.choice(DATES),
        "brand": some(chance, lambda: chance.choice(BRANDS)),
        "place": some(chance, lambda: chance.choice(PATHS)),
    }
    return {field: value for field, value in made.items() if chance.random() < 0.85}


OPERANDS: dict[str, Callable[[random.Random], Any]] = {
    "price": lambda chance: chance.choice([1, 2.5, 3, 5, 10.25]),
    "stock": lambda chance: chance.randint(0, 5),
    "sold": lambda chance: chance.random() < 0.5,
    "added": lambda chance: chance.choice(DATES),
    "brand": lambda chance: chance.choice(BRANDS),
    "place": lambda chance: chance.choice(PATHS),
}


def a_condition(chance: random.Random) -> dict[str, Any]:
    field = chance.choice([word for word in SCHEMA.split() if word.islower()])
    if field not in ("title", "plain", "code"):
        operators = ["plain", "$eq", "$in"]
        if field not in ("sold", "place"):
            operators += ["range", "range"]
        operator = chance.choice(operators)
        if operator == "plain":
            return {field: OPERANDS[field](chance)}
        if operator == "$in":
            return {field: {"$in": [OPERANDS[field](chance) for _ in range(chance.randint(0, 3))]}}
        if operator == "$eq":
            return {field: {"$eq": OPERANDS[field](chance)}}
        words = chance.sample([*COMPARE], k=chance.randint(1, 3))
        return {field: {word: OPERANDS[field](chance) for word in words}}
    words = a_text(chance, 3)
    operator = chance.choice(["plain", "$smart", "$eq", "$in", "$phrase", "$fuzzy", "$regex"])
    operand: Any = words
    if operator == "plain" or operator == "$smart":
        operand = f'"{words}"' if chance.random() < 0.2 else words
        return {field: operand} if operator == "plain" else {field: {"$smart": operand}}
    if operator == "$in":
        operand = [a_text(chance, 2) for _ in range(chance.randint(0, 3))]
    elif operator == "$phrase" and chance.random() < 0.7:
        option = {"slop": chance.randint(0, 4)} if chance.random() < 0.5 else {"prefix": True}
        operand = {"value": words, **option}
    elif operator == "$fuzzy" and chance.random() < 0.7:
        operand = {
            "value": words,
            "distance": chance.randint(0, 2),
            "transpositionCostOne": chance.random() < 0.5,
            "prefix": chance.random() < 0.5,
        }
    elif operator == "$regex":
        patterns = ["b.*", ".*s", "RUN", "[a-c]+", "(red|bed)", "sho.", "r.n?", "ab{1}c?"]
        operand = chance.choice(patterns)
    condition = {operator: operand}
    return {field: {**condition, "$boost": 2} if chance.random() < 0.2 else condition}


def a_filter(chance: random.Random, depth: int = 2) -> dict[str, Any]:
    if not depth or chance.random() < 0.4:
        made: dict[str, Any] = {}
        for _ in range(chance.randint(1, 2)):
            made |= a_condition(chance)
        return made
    made = a_condition(chance) if chance.random() < 0.4 else {}
    words = chance.sample(["$must", "$should", "$mustNot"], k=chance.randint(1, 3))
    for word in words:
        spelled = word
        if chance.random() < 0.3 and not {"$and", "$or"} & set(made):
            spelled = {"$must": "$and", "$should": "$or"}.get(word, word)
        made[spelled] = [a_filter(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    if chance.random() < 0.2:
        made["$boost"] = chance.choice([0.5, 3, -1])
    return made


@pytest.mark.parametrize("batch", range(max(CASES // PER_BATCH, 1)))
def test_filters_find_what_the_reference_finds(run: Run, batch: int) -> None:
    chance = random.Random(batch)
    shop = Searching(run)
    run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA " + SCHEMA)
    documents: dict[str, dict[str, Any]] = {}
    for case in range(PER_BATCH):
        for _ in range(20 if not case else chance.randint(0, 2)):
            key = f"p:{chance.randint(0, 30)}"
            if key in documents and chance.random() < 0.4:
                del documents[key]
                run("DEL", key)
            else:
                documents[key] = a_document(chance)
                shop.put(key, documents[key])
        filter = a_filter(chance)
        wanted = {key for key, document in documents.items() if holds(document, filter)}
        assert shop.found(filter) == wanted, (filter, documents)
