"""The data of a fake, as people see it.

The ``data`` module of a service reads its fakes once for three readers: the page of a report
(`state()`, items by section and name), the console (`LISTS` in pages, and `counts()`) and the
control API (`content()`).

Pages have a search, filters, counts and a cursor in each direction. A cursor is the sort key of a
page's last or first item, so it stays valid while items are added and removed: items that remain in
the list are neither skipped nor repeated.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, cast
from zlib import crc32

from ..cloud.fake import Fake
from ..cloud.services import data_module
from ..core.errors import ContractError, ServiceError, unknown_name
from ..core.timers import instant_us, to_datetime

T = TypeVar("T")
SortKey: TypeAlias = tuple[int | str, ...]
"""The sort key of an item."""
View: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, dict[str, Item]]
"""Items by section and name, each a mapping of its fields."""

PAGE = 100
"""The default number of items on a page."""
LARGEST_PAGE = 500
PAGING = {
    "search": "return only items that contain each of these words, ignoring case",
    "after": "the cursor `next` of another page",
    "before": "the cursor `previous` of another page",
    "around": "the id of an item: return the page with it, unless the one that is asked for has it",
    "limit": f"maximum number of items, at most {LARGEST_PAGE}",
    "sort": "a field of the items to sort by, with a - before it in descending order",
}
"""The parameters of every list; each list also has its own filters."""
MOST_SORTED = 20_000
"""Maximum number of items that are sorted by a field, because the row of each is needed."""
MOST_IN_VIEW = 500
"""Maximum number of keys, vectors, records or messages in a view, whose counts include the rest."""


# -- shapes of the control API, of which the openapi document is generated --------------------------


class AttemptView(TypedDict):
    """An attempt to deliver a message; ``waited`` and ``took`` are in seconds, ``took`` is null until it
    has ended.
    """

    message: str
    url: str
    number: int
    at: str
    waited: float
    took: float | None
    why: str
    status: int | None
    state: str
    exception: str | None
    final: bool


EventKind = Literal[
    "delivery", "callback", "wait", "sleep", "schedule", "expiry", "removal", "other"
]
"""What is due: a delivery, one of a callback, a retry (the end of its wait), the end of a workflow's
sleep, a run of a schedule, the expiry of a key, the removal of an item by its age, or another timer of a
fake.
"""


class PlannedEvent(NamedTuple):
    """What happens at a time, with the item of a list of its fake that it is about."""

    kind: EventKind
    list: str | None
    item: str | None
    what: str


class OpenLetter(NamedTuple):
    """A dead letter whose message was not delivered since, and the run of which that was a step."""

    fake: str
    id: str
    message_id: str
    run_id: str | None


class MessageView(TypedDict):
    """A message with its attempts."""

    id: str
    kind: str
    state: str
    method: str
    url: str
    retried: int
    next: str | None
    max_retries: int
    body: str
    timeline: str
    attempts: list[AttemptView]


class DeadLetter(TypedDict):
    """A dead letter; ``message`` is the id of its message."""

    id: str
    at: str
    url: str
    status: int | None
    message: str


# -- lists -----------------------------------------------------------------------------------------


class NotFound(ServiceError):
    """Raised for an unknown item or list. The response is a 404."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


class PageQuery(NamedTuple):
    """The part of a list that a request asks for.

    ``search`` are words that an item must contain, ignoring case. ``after`` and ``before`` are
    cursors; without either, the first page is returned. ``filters`` are the list's own, by name.
    ``sort`` is a field of the items, with ``-`` in descending order; empty for the list's own order.
    ``around`` is the id of an item: if it matches but is not on that page, the page with it is returned.
    """

    search: str = ""
    after: str = ""
    before: str = ""
    limit: int = PAGE
    filters: Mapping[str, str] = MappingProxyType({})
    sort: str = ""
    around: str = ""

    def number(self, name: str) -> int | None:
        """Return a filter as an integer, or None; raise ``ContractError`` for another string."""
        return whole_number(name, self.filters.get(name))

    def time_us(self, name: str) -> int | None:
        """Return a filter as a time in microseconds, or None if it is absent.

        A time without an offset is in UTC. Raises ``ContractError`` for a malformed time.
        """
        text = self.filters.get(name, "")
        if not text:
            return None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise ContractError(
                f"{name} must be a time such as 2026-02-01T09:00, got {text!r:.50}"
            ) from None
        return instant_us(at if at.tzinfo else at.replace(tzinfo=UTC))


def whole_number(name: str, text: str | None) -> int | None:
    """Return a parameter as an integer, or None; raise ``ContractError`` for another string."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ContractError(f"{name} must be a whole number of at most 18 digits, got {text!r:.50}")
    return int(text)


class Listing(NamedTuple):
    """A list that a fake offers: functions that return a page and one item, and the list's filters.

    The id of an item has surrogates in place of bytes that are not UTF-8, which a key may contain.
    """

    page: Callable[[Any, PageQuery], View]
    item: Callable[[Any, str, PageQuery], View] | None = None
    filters: tuple[str, ...] = ()


def page_of(
    items: Iterable[T],
    page_query: PageQuery,
    *,
    sort_key: Callable[[T], SortKey],
    show: Callable[[T], View],
    text: Callable[[T], str],
    facet: tuple[str, Callable[[T], str]] | None = None,
    values: Mapping[str, Callable[[T], Any]] = MappingProxyType({}),
) -> View:
    """Return a page as plain JSON.

    ``total`` is the number of all items, ``matching`` the number of items that match the search and
    the filters, and ``first`` the position of the page's first item among the matching items.
    ``next`` and ``previous`` are cursors, or None at either end of the list. ``text`` returns the
    searchable text of an item; with a search, items that it describes best come first (see `rank`).
    A ``facet`` is a filter by a property with few values; ``facets``
    then counts the items of each value. ``values`` return fields by which items are sorted without
    their rows. An item has the part of its text that matches the search in ``found``, unless its
    other fields show that. Raises ``ContractError`` for a cursor of another list, for
    an unknown field to sort by, and if there are too many items to sort.
    """
    every = list(items)
    matching = every
    if page_query.search:
        matching = [item for item in every if contains(text(item), page_query.search)]
    page: View = {"total": len(every)}

    def row_of(item: T) -> View:
        row = show(item)
        return _with_excerpt(row, text(item), page_query.search) if page_query.search else row

    id_of = values.get("id") or (lambda item: _id_of(show(item)))
    if facet is not None:
        name, value_of = facet
        page["facets"] = dict(sorted(Counter(map(value_of, matching)).items()))
        if value := page_query.filters.get(name):
            matching = [item for item in matching if value_of(item) == value]
    if page_query.sort:
        name = page_query.sort.removeprefix("-")
        value_of = values.get(name) or (lambda item: _field(show(item), name))
        ordered = [*enumerate(_sorted(matching, value_of, reverse=page_query.sort != name))]
        return page | _part(
            ordered,
            page_query,
            lambda numbered_item: (numbered_item[0],),
            lambda numbered_item: row_of(numbered_item[1]),
            lambda numbered_item: id_of(numbered_item[1]),
        )
    if page_query.search:
        ranked = [(rank(text(item), page_query.search), item) for item in matching]
        ranked.sort(key=lambda ranked_item: (ranked_item[0], *sort_key(ranked_item[1])))
        return page | _part(
            ranked,
            page_query,
            lambda ranked_item: (ranked_item[0], *sort_key(ranked_item[1])),
            lambda ranked_item: row_of(ranked_item[1]),
            lambda ranked_item: id_of(ranked_item[1]),
        )
    return page | _part(sorted(matching, key=sort_key), page_query, sort_key, row_of, id_of)


def contains(text: str, search: str) -> bool:
    """Return whether a text contains each word of a search, ignoring case."""
    folded = text.casefold()
    return all(word in folded for word in search.casefold().split())


def rank(text: str, search: str) -> int:
    """Return how well a text that contains the words of a search fits it, 0 for best.

    Best is a text whose first line, the name of its item, is the search; then one with another
    line that is the search, one with a line that begins with it, one with all words whole, and one
    that has some only as parts of others.
    """
    folded, folded_search = text.casefold(), search.strip().casefold()
    lines = folded.split("\n")
    if folded_search in lines:
        return 0 if lines[0] == folded_search else 1
    if any(line.startswith(folded_search) for line in lines):
        return 2
    whole = (rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in folded_search.split())
    return 3 if all(re.search(pattern, folded) for pattern in whole) else 4


_EXCERPT = 160
"""Number of characters of an item's text that are shown around what a search has found."""


def _with_excerpt(row: View, text: str, search: str) -> View:
    """Return a row that shows what a search has found in the text of its item."""
    if contains("\n".join(value for value in row.values() if isinstance(value, str)), search):
        return row
    return row | {"found": excerpt(text, search, _EXCERPT)}


def excerpt(text: str, search: str, most: int) -> str:
    """Return at most so many characters of a text, around the longest word of a search."""
    # The longest word is the one that tells most.
    start = max(0, text.casefold().find(max(search.casefold().split(), key=len)) - most // 4)
    return ("…" if start else "") + text[start : start + most]


def _field(row: View, name: str) -> Any:
    if name not in row:
        raise ContractError(unknown_name("field of this list", name, sorted(row)))
    return row[name]


def _sorted(items: Collection[T], value_of: Callable[[T], Any], *, reverse: bool) -> list[T]:
    """Return items in the order of a value; items without a value are last."""
    if len(items) > MOST_SORTED:
        raise ContractError(
            f"{len(items):,} items are too many to sort: search or filter for at most {MOST_SORTED:,}"
        )
    pairs = [(value_of(item), item) for item in items]

    def key(pair: tuple[Any, T]) -> tuple[bool, float, str]:
        value = pair[0]
        if isinstance(value, int | float):
            return False, value, ""
        return True, 0, natural(str(value).casefold())

    present = sorted((pair for pair in pairs if pair[0] is not None), key=key, reverse=reverse)
    return [item for _, item in present] + [item for value, item in pairs if value is None]


def _part(
    items: list[T],
    page_query: PageQuery,
    sort_key: Callable[[T], SortKey],
    show: Callable[[T], View],
    id_of: Callable[[T], Any],
) -> View:
    start, end = _ends(items, page_query, sort_key)
    if page_query.around:
        places = (at for at, item in enumerate(items) if id_of(item) == page_query.around)
        place = next(places, None)
        if place is not None and not start <= place < end:
            start = place - place % page_query.limit
            end = min(len(items), start + page_query.limit)
    rows = items[start:end]
    if rows:
        first, last = sort_key(rows[0]), sort_key(rows[-1])
    else:
        # The page is before or behind all items, because those around its cursor were removed. A
        # longer key is greater than its beginning, and the empty key is less than any other.
        first, last = (*sort_key(items[-1]), "") if items else (), ()
    return {
        "matching": len(items),
        "first": start + 1 if rows else 0,
        "items": [show(item) for item in rows],
        "previous": _cursor(first) if start else None,
        "next": _cursor(last) if end < len(items) else None,
    }


def _id_of(row: View) -> Any:
    """Return what names an item among those of its list."""
    return next((row[name] for name in ("id", "name", "key") if name in row), None)


def page_of_names(names: Iterable[str], page_query: PageQuery, show: Callable[[str], View]) -> View:
    """Return a page of items that are sorted and searched by their names."""
    return page_of(names, page_query, sort_key=lambda name: (natural(name),), show=show, text=str)


_DIGITS = re.compile("[0-9]+")


def natural(name: str) -> str:
    """Return a string by which numbers within names are in order: ``job-2`` before ``job-10``."""
    return _DIGITS.sub(lambda digits: f"{len(digits[0]):09}{digits[0]}", name)


def _ends(
    items: list[T], page_query: PageQuery, sort_key: Callable[[T], SortKey]
) -> tuple[int, int]:
    start = 0
    try:
        if page_query.after:
            start = bisect_right(items, _read(page_query.after), key=sort_key)
        elif page_query.before:
            end = bisect_left(items, _read(page_query.before), key=sort_key)
            return max(0, end - page_query.limit), end
    except (TypeError, ValueError, RecursionError):
        raise ContractError(
            "the cursor does not belong to this list: use `next` or `previous` of a page"
        ) from None
    return start, min(len(items), start + page_query.limit)


def _cursor(sort_key: SortKey) -> str:
    return json.dumps(sort_key, separators=(",", ":"))


def _read(cursor: str) -> SortKey:
    sort_key = json.loads(cursor)
    if not isinstance(sort_key, list):
        raise TypeError(sort_key)
    return tuple(sort_key)


def cut(name: str, text: str, most: int) -> View:
    """Return the beginning of a text under a name, and whether it is the whole text."""
    return {name: text[:most], "is_whole": len(text) <= most}


def plain(value: Any, errors: str = "replace") -> Any:
    """Return a value as plain JSON: keys are strings, sets are sorted, and bytes are decoded.

    ``errors`` says how to decode bytes that are not UTF-8, which U+FFFD replaces by default.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", errors)
    if isinstance(value, Mapping):
        return {str(plain(key, errors)): plain(item, errors) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item, errors) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item, errors) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def shown_time(at_us: int) -> str:
    """Return a time as a report's page shows it."""
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def read_time(shown: str) -> datetime:
    """Return the time that ``shown_time()`` has written, such as ``2026-01-01 00:15:00.000 UTC``."""
    return datetime.strptime(shown.replace(" UTC", " +0000"), "%Y-%m-%d %H:%M:%S.%f %z")


# -- changes ---------------------------------------------------------------------------------------


class StateChange(NamedTuple):
    """A changed item of a fake, with its fields before and after; None while it does not exist."""

    fake: str
    section: str
    item: str
    before: Item | None
    after: Item | None


LONGEST = 2_000
"""Maximum number of characters that are shown of a value."""
LONGEST_COMPARED = 1_000_000
"""Maximum number of characters of a value that is compared with another version."""


def state_of(fake: Fake) -> State:
    """Return the items of a fake, by section and name, from the ``data`` module of its service."""
    state: State = data_module(fake.fixture).state(fake)
    return state


def can_put_back(fake: Fake, section: str) -> bool:
    """Return whether single items of a section of a fake can be put back."""
    of_service = getattr(data_module(fake.fixture), "can_put_back", None)
    return of_service is not None and bool(of_service(section))


def item_reader(fake: Fake, section: str, item: str) -> Callable[[], Item | None] | None:
    """Return a function that reads one item as its state contains it, without the rest of the state;
    None if only the whole state can be read.
    """
    make = getattr(data_module(fake.fixture), "item_reader", None)
    reader: Callable[[], Item | None] | None = make and make(fake, section, item)
    return reader


def changes_of(name: str, before: State, after: State) -> Iterator[StateChange]:
    """Yield the items of a fake that differ between two states, with all of their data."""
    for section in {**before, **after}:
        old, new = before.get(section, {}), after.get(section, {})
        for item in {**old, **new}:
            if not _is_same(old.get(item), new.get(item)):
                yield StateChange(name, section, item, old.get(item), new.get(item))


def _is_same(value: Any, other: Any) -> bool:
    """Return whether two values are the same as JSON. In Python, True equals 1, and 1 equals 1.0."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(
            _is_same(item, other[name]) for name, item in value.items()
        )
    if isinstance(value, list):
        return len(value) == len(other) and all(map(_is_same, value, other))
    return bool(value == other)


def parts_of_value(fields: Item | None) -> dict[str, Any]:
    """Return the parts of an item's value by name: its fields, or the first and the last element of a
    list; nothing for another value.
    """
    value = None if fields is None else fields.get("value")
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value and cast("Item", fields).get("type") != "set":
        return {"first": value[0], "last": value[-1]}
    return {}


def short(state: State) -> State:
    """Return a state whose long values are shortened, for a page."""
    return {
        section: {name: short_item(fields) for name, fields in items.items()}
        for section, items in state.items()
    }


def short_item(fields: Mapping[str, Any]) -> Item:
    """Return an item's fields; of a long value, only its beginning, its length and a checksum, which
    shows that the rest has changed.
    """
    return {
        name: value
        if len(text := _text_of(value)) <= LONGEST
        else f"{text[:LONGEST]}… ({_summary(text)})"
        for name, value in fields.items()
    }


def _summary(text: str) -> str:
    return f"{len(text):,} characters, checksum {crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def compared(before: Item | None, after: Item | None) -> tuple[Item | None, Item | None]:
    """Return two versions of an item to compare: whole values where they differ, short ones elsewhere.

    Of values longer than ``LONGEST_COMPARED``, only length and checksum are returned.
    """
    items = [None if item is None else short_item(item) for item in (before, after)]
    if before is not None and after is not None:
        for name in before.keys() & after.keys():
            if _is_same(before[name], after[name]):
                continue
            for item, whole in zip(items, (before, after), strict=True):
                text = _text_of(whole[name])
                is_short = len(text) <= LONGEST_COMPARED
                # As text, JSON keeps its numbers: JavaScript reads 1.0 as 1, and rounds large ones.
                value = text if isinstance(whole[name], dict | list) else whole[name]
                cast("Item", item)[name] = value if is_short else _summary(text)
    return items[0], items[1]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)
