"""What clients upserted and queried, read from the journal, and failures that name the nearest."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import orjson

from ..core.errors import ContractError
from ..core.journal import Call, Found, Journal
from ..core.wording import (
    SHOWN,
    Predicate,
    brief,
    check_times,
    differences,
)
from .embedding import is_sequence
from .errors import VectorError
from .fields import as_floats, from_array
from .model import Floats

__all__ = ["expect", "queries", "refused", "upserts"]

UPSERTS = ("upsert", "upsert-data")
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
DEFAULTS = {"topK": 10, "filter": ""}
NEAREST = 5
COMPARED = 10_000
"""How many misses with equally many differences are compared by closeness; more take seconds."""
SPELLINGS: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "data": (str,),
    "filter": (str,),
    "namespace": (str,),
    "topK": (int, np.integer),
    "metadata": (Mapping,),
}
"""What each field but the vector can be equal to; matchers of other libraries are let through."""
BUILTIN = (bool, int, float, str, bytes, list, tuple, set, frozenset, dict, np.ndarray, np.generic)

Item = dict[str, Any]


def upserts(journal: Journal) -> Iterator[Item]:
    """Every record clients upserted, as sent, with its ``namespace``; ids are text."""
    for call in _calls(journal, UPSERTS, reached=True):
        yield from _items(call)


def queries(journal: Journal) -> Iterator[Item]:
    """Every query the index carried out, as sent, with its defaults and ``namespace``."""
    for call in _calls(journal, QUERIES, reached=True):
        yield from _items(call)


def refused(journal: Journal, routes: Iterable[str]) -> Iterator[tuple[Item, str]]:
    """What clients sent that was not carried out, and why."""
    for call in _calls(journal, routes, reached=False):
        why = f"not carried out: {_why_refused(call)}"
        try:
            items = list(_items(call))
        except (ValueError, AttributeError):  # no JSON, or no records in it: that is what it says
            items = [{"namespace": namespace_of(call)}]
        for item in items:
            yield item, why


def _calls(journal: Journal, routes: Iterable[str], *, reached: bool) -> Iterator[Call]:
    # Not by status: a fault may lose the answer of a call that was carried out, and may answer
    # 200 to one that was not.
    names = tuple(routes)
    return (call for call in journal.calls() if call.route in names and call.reached is reached)


def _items(call: Call) -> Iterator[Item]:
    body = orjson.loads(call.whole_body())
    for item in body if isinstance(body, list) else [body]:
        given = {name: value for name, value in item.items() if value is not None}
        if call.route in QUERIES:
            given = {**DEFAULTS, **given}
        else:
            given["id"] = str(item.get("id"))
        yield {**given, "namespace": namespace_of(call)}


def _why_refused(call: Call) -> str:
    if call.fault:
        return f"the fault {call.fault} kept it from the index"
    try:
        return f"{call.status} {call.answer_json()['error']}"
    except (ValueError, LookupError, TypeError):
        return f"{call.status or call.outcome}"


def namespace_of(call: Call) -> str:
    """The namespace in a call's path."""
    return unquote(call.path.removeprefix("/").partition("/")[2])


def expect(
    what: str,
    seen: Iterable[Item],
    wanted: Mapping[str, Any],
    times: int | None,
    not_carried_out: Iterable[tuple[Item, str]] = (),
) -> Found[Item]:
    """The seen items that agree with ``wanted``; fails unless one does, or exactly ``times``.

    A callable is a predicate on the field; None is not compared. Vectors are compared as the index
    keeps them, in float32. A predicate that raises does not hold; one that raises for every item
    fails the assertion, as nobody knows what it means. ``not_carried_out`` are items that do not
    count, and why, for the failure alone.

    Raises ``ContractError`` for what no item could ever agree with.
    """
    __tracebackhide__ = True
    check_times(times)
    wanted = {name: _wanted(name, value) for name, value in wanted.items() if value is not None}
    predicates = [Predicate(value) for value in wanted.values() if callable(value)]
    tests = {name: _test(value, predicates) for name, value in wanted.items()}
    items = list(seen)
    # Predicates come last, so that they are asked only about what agrees in all else.
    quick = sorted(tests.items(), key=lambda test: callable(wanted[test[0]]))
    found = Found(
        item
        for item in items
        if all(name in item and test(item[name]) is None for name, test in quick)
    )
    unclear = any(predicate.undecided for predicate in predicates)
    if not unclear and ((times is None and found) or (times is not None and len(found) == times)):
        return found
    asked = " ".join(f"{name}={_shown(value)}" for name, value in wanted.items()) or "(any)"
    often = "at least once" if times is None else f"{times} time(s)"
    lines = [f"expected {what} {asked} {often}, found {len(found)}"]
    if unclear:
        lines.append("  a predicate raised for every one it was asked about, so it decides nothing")
    lines += [f"  matched: {_short(item)}" for item in found[:NEAREST]]
    misses = [(item, why) for item in items if (why := _differences(item, wanted, tests))]
    misses += [(item, [*_differences(item, wanted, tests), why]) for item, why in not_carried_out]
    lines += [f"  not {_short(item)}: {'; '.join(why)}" for item, why in _nearest(misses, wanted)]
    if not items and not misses:
        lines.append(f"  no client has made {what.rpartition(' ')[0]} at all")
    raise AssertionError("\n".join(lines))


def _wanted(name: str, value: Any) -> Any:
    """A value in the form in which a field is compared with it."""
    if callable(value):
        return value
    if name == "vector" and is_sequence(value) and not isinstance(value, set | frozenset):
        try:
            return (
                from_array(value) if isinstance(value, np.ndarray) else as_floats(_numbers(value))
            )
        except VectorError as error:
            raise ContractError(f"no vector can be {value!r:.80}: {error.message}") from None
    if name == "id" and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    kinds = SPELLINGS.get(name, ())
    wrong = isinstance(value, BUILTIN) and (isinstance(value, bool) or not isinstance(value, kinds))
    if wrong or (name == "topK" and isinstance(value, int | np.integer) and value < 1):
        expected = {
            "topK": "a whole number of at least 1",
            "metadata": "a mapping",
            "vector": "a list of numbers",
        }
        label = "top_k" if name == "topK" else name
        raise ContractError(
            f"{label}={brief(value, 80)} can never be sent: "
            f"give {expected.get(name, 'a text')}, or a predicate on the field"
        )
    return _as_sent(value)


def _numbers(values: Any) -> list[Any]:
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _as_sent(value: Any) -> Any:
    """Lists for tuples and arrays, as JSON brings them; whatever else compares for itself."""
    if isinstance(value, Mapping):
        for name in value:
            if isinstance(name, BUILTIN) and not isinstance(name, str):
                raise ContractError(
                    f"a name in JSON is a text, {brief(name, 80)} can never be sent"
                )
        return {name: _as_sent(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_sent(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _test(wanted: Any, predicates: Iterable[Predicate]) -> Callable[[Any], str | None]:
    """What tells how a value differs from the wanted one: None, or the rest of a sentence."""
    for predicate in predicates:
        if predicate.function is wanted:
            return predicate.why_not
    if isinstance(wanted, np.ndarray):
        return lambda value: _vector_differs(value, wanted)
    return lambda value: None if bool(value == wanted) else f", not {_shown(wanted)}"


def _vector_differs(value: Any, wanted: Floats) -> str | None:
    try:
        given = as_floats(value)
    except VectorError:
        return f", not {_shown(wanted)}"
    if len(given) != len(wanted):
        return f", not {len(wanted)} numbers"
    if np.array_equal(given, wanted):
        return None
    if len(wanted) * 10 <= SHOWN:
        return f", not {_shown(wanted)}"
    place = int(np.argmax(given != wanted))
    count = int(np.count_nonzero(given != wanted))
    return (
        f" that differs in {count} numbers, first in [{place}]: {given[place]}, not {wanted[place]}"
    )


_MISSING = object()


def _differences(
    item: Item, wanted: Mapping[str, Any], tests: Mapping[str, Callable[[Any], str | None]]
) -> list[str]:
    reasons = []
    for name, test in tests.items():
        value = item.get(name, _MISSING)
        if value is _MISSING:
            reasons.append(f"{name} is absent, not {_shown(wanted[name])}")
        elif (difference := test(value)) is not None:
            expected = wanted[name]
            alike = type(value) is type(expected) and isinstance(value, dict | str)
            if alike and max(len(repr(value)), len(repr(expected))) > SHOWN:
                places = list(differences(value, expected, name))
                rest = len(places) - NEAREST
                more = f" and {rest} more" if rest > 0 else ""
                reasons.append(", ".join(places[:NEAREST]) + more)
            else:
                reasons.append(f"{name} is {_shown(value)}{difference}")
    return reasons


def _nearest(
    misses: Iterable[tuple[Item, list[str]]], wanted: Mapping[str, Any]
) -> list[tuple[Item, list[str]]]:
    """The misses with the fewest differences; of equally many, those of the likest texts."""
    by_count = sorted(misses, key=lambda pair: len(pair[1]))
    compared = itertools.islice(by_count, COMPARED)
    ranked = sorted(compared, key=lambda pair: (len(pair[1]), -_likeness(pair[0], wanted)))
    return ranked[:NEAREST]


def _likeness(item: Item, wanted: Mapping[str, Any]) -> float:
    total = 0.0
    for name, value in wanted.items():
        if isinstance(value, str | int | dict) and name in item:
            one, other = f"{item[name]!r:.80}", f"{value!r:.80}"
            total += difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    return total


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and len(repr(value)) > SHOWN:
        return f"<{len(value)} numbers>"
    return brief(value)


def _short(item: Item) -> str:
    parts = []
    for name, value in item.items():
        if name == "vector" and isinstance(value, list):
            parts.append(f"{name}=<{len(value)} numbers>")
        elif name == "sparseVector" and isinstance(value, dict):
            indices = value.get("indices")
            count = len(indices) if isinstance(indices, list) else 0
            parts.append(f"{name}=<{count} numbers>")
        else:
            parts.append(f"{name}={brief(value, 80)}")
    return " ".join(parts)
