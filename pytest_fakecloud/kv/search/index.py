"""A search index: its documents, its pending changes, and the indexes of a database.

A write only records which keys changed, and the next search creates their documents. Therefore the
cost of a write does not depend on the size of the index, and tests that never search pay little for
writes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.budget import OverBudget, budgeted, spend
from ..table.syntax import encoded
from .documents import Document, make_document
from .postings import FacetPostings, TextPostings, ValuePostings
from .schema import KEY_TYPES, Definition, FieldSpec, SearchError

if TYPE_CHECKING:
    from ..engine.keyspace import Keyspace

_STEPS, _STEPS_PER_BYTE = 100, 3
"""Budget steps for a document, and for each byte of its size, where a word has eight bytes."""


class Waiting:
    """A changed key that becomes searchable only at a given time, or after a number of searches."""

    __slots__ = ("due_ms", "reads")

    def __init__(self, due_ms: int | None, reads: int | None) -> None:
        self.due_ms = due_ms
        self.reads = reads


class SearchIndex:
    """A search index, stored as the value of a key.

    ``documents`` are numbered in the order in which they were indexed. A changed document is
    indexed again under a new number. ``waiting`` contains the changed keys that are not searchable
    yet.
    """

    type_name = "search"
    __slots__ = (
        "_changed", "_fields", "_next", "_numbers", "_unposted", "definition", "documents", "waiting",
    )  # fmt: skip

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.documents: dict[int, Document] = {}
        self.waiting: dict[bytes, Waiting] = {}
        self._numbers: dict[bytes, int] = {}
        self._changed: OrderedDict[bytes, None] = OrderedDict()
        self._fields: dict[str, TextPostings | ValuePostings] | None = None
        self._unposted: deque[int] = deque()
        """The numbers of the newest documents, whose terms and values are not in the postings yet."""
        self._next = 0

    # -- the value of a key ----------------------------------------------------------------------

    def encoding(self, config: object) -> str:
        return "raw"

    def __len__(self) -> int:
        return 1  # The key of an index is never removed for being empty.

    def copy(self) -> SearchIndex:
        """Return a copy of the index. Documents are shared, because they are immutable."""
        twin = SearchIndex(self.definition)
        twin.documents = dict(self.documents)
        twin.waiting = {key: Waiting(one.due_ms, one.reads) for key, one in self.waiting.items()}
        twin._numbers = dict(self._numbers)
        twin._changed = self._changed.copy()
        twin._next = self._next
        return twin

    def to_python(self) -> dict[str, Any]:
        definition = self.definition
        return {
            "type": definition.kind,
            "prefixes": list(definition.prefixes),
            "language": definition.language,
            "schema": {each.name: each.words()[1:] for each in definition.fields},
        }

    # -- tracking changes ------------------------------------------------------------------------

    def note(self, key: bytes, due_ms: int | None, reads: int | None) -> None:
        """Record a changed key. It becomes searchable immediately unless a delay is given."""
        if not self.definition.covers(key):
            return
        if due_ms is None and reads is None:
            self._changed[key] = None
            self._changed.move_to_end(key)
        else:
            self.waiting.pop(key, None)
            self.waiting[key] = Waiting(due_ms, reads)

    def scan(self, keyspace: Keyspace, due_ms: int | None, reads: int | None) -> None:
        """Record all existing keys of the index's type as changed."""
        kind = KEY_TYPES[self.definition.kind]
        for key in keyspace:
            value = keyspace.values[key]
            word = "string" if isinstance(value, bytes | bytearray) else value.type_name
            if word == kind:
                self.note(key, due_ms, reads)

    def empty(self) -> None:
        self.documents.clear()
        self._numbers.clear()
        self._changed.clear()
        self.waiting.clear()
        self._fields = None
        self._unposted.clear()

    def release(self) -> None:
        """Make all pending changes searchable."""
        for key in self.waiting:
            self._changed[key] = None
        self.waiting.clear()

    def refresh(self, keyspace: Keyspace, is_read: bool = True) -> None:
        """Index the changed keys that need not wait; ``is_read`` counts the call as a search.

        After `OverBudget`, the next call continues with the remaining keys.
        """
        keyspace.purge()
        if self.waiting:
            self._release_due(keyspace.now_ms, is_read)
        while self._changed:
            key, _ = self._changed.popitem(last=False)
            self._forget(key)
            value = keyspace.values.get(key)
            document = None if value is None else make_document(self.definition, key, value)
            if document is not None:
                self._add(document)
            spend(_STEPS + (0 if document is None else _STEPS_PER_BYTE * document.size))
        if self._fields is None:
            self._fields = {each.name: _postings(each) for each in self.definition.fields}
            self._unposted.extend(self.documents)
        while self._unposted:
            number = self._unposted.popleft()
            document = self.documents.get(number)
            if document is not None:
                for name, values in document.fields.items():
                    self._fields[name].add(number, values)
                spend(_STEPS_PER_BYTE * document.size)

    def _release_due(self, now_ms: int, is_read: bool) -> None:
        due = []
        for key, one in self.waiting.items():
            if one.due_ms is not None and one.due_ms <= now_ms:
                due.append(key)
            elif one.reads is not None and is_read:
                if one.reads <= 0:
                    due.append(key)
                one.reads -= 1
        for key in due:
            del self.waiting[key]
            self._changed[key] = None

    def _add(self, document: Document) -> None:
        number = self._next
        self._next += 1
        self._numbers[document.key] = number
        self.documents[number] = document
        if self._fields is not None:
            self._unposted.append(number)

    def _forget(self, key: bytes) -> None:
        number = self._numbers.pop(key, None)
        if number is None:
            return
        document = self.documents.pop(number)
        is_posted = not self._unposted or number < self._unposted[0]
        if self._fields is not None and is_posted:
            for name, values in document.fields.items():
                self._fields[name].remove(number, values)

    # -- lookups ---------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The estimated total size of the documents in bytes (decided here)."""
        return sum(document.size for document in self.documents.values())

    def number_of(self, key: bytes) -> int | None:
        """Return the number of a key's document, or None if the key has no document."""
        return self._numbers.get(key)

    def text(self, name: str) -> TextPostings:
        """Return the postings of a TEXT field."""
        found = self._postings(name)
        assert isinstance(found, TextPostings)
        return found

    def values(self, name: str) -> ValuePostings:
        """Return the postings of a field of any type except TEXT."""
        found = self._postings(name)
        assert isinstance(found, ValuePostings)
        return found

    def _postings(self, name: str) -> TextPostings | ValuePostings:
        assert self._fields is not None, "refresh() comes first"
        return self._fields[name]

    def column(self, name: str) -> dict[int, tuple[Any, ...]]:
        """Return the values of a fast field by document number; raise `SearchError` for others."""
        spec = self.definition.by_name.get(name)
        if spec is None or not spec.fast:
            # This is Tantivy's error message, as users of the vendor reported it.
            raise SearchError(f"Field `{name}` is not a fast field")
        return self.values(name).of

    def shown(self, number: int, name: str) -> str:
        """Describe the indexed values of a field in a document."""
        values = self.documents[number].fields.get(name)
        if values is None:
            return f"the document has no '{name}' that could be indexed"
        if values[0].__class__ is tuple:
            texts = (" ".join(token for token in tokens if token) for tokens in values)
            return f"its '{name}' was indexed as [{' | '.join(texts)}]"
        return f"its '{name}' is {', '.join(map(repr, values))}"


def _postings(spec: FieldSpec) -> TextPostings | ValuePostings:
    if spec.is_text:
        return TextPostings()
    return FacetPostings() if spec.kind == "FACET" else ValuePostings()


# -- the indexes of a database ---------------------------------------------------------------------

PART_STEPS = 500_000
"""Number of indexing steps after which other clients get a turn, about 50 ms."""


@dataclass(frozen=True)
class Search:
    """A search that a client made.

    ``command`` is ``"query"``, ``"count"`` or ``"aggregate"``. ``index`` is the name or alias in
    the command, and ``filter`` the parsed filter. ``keys`` contains the keys that a query returned,
    in order. ``total`` is the number of matching documents, and ``pending`` the number of changes
    that were not searchable yet.
    """

    command: str
    index: str
    filter: dict[str, Any]
    keys: list[str] = field(default_factory=list)
    total: int = 0
    pending: int = 0


class Indexes:
    """The indexes of a database by name.

    A change becomes searchable after ``delay_ms`` milliseconds or ``delay_reads`` searches; None
    means no delay. ``aliases`` can refer to indexes that do not exist.
    """

    def __init__(self, delay_ms: int | None = None, delay_reads: int | None = None) -> None:
        self.named: dict[bytes, SearchIndex] = {}
        self.aliases: dict[bytes, bytes] = {}
        self.delay_ms = delay_ms
        self.delay_reads = delay_reads

    def find(self, name: bytes) -> tuple[bytes, SearchIndex] | None:
        """Return the name and the index for a name or alias. Names take precedence over aliases."""
        index = self.named.get(name)
        if index is None:
            name = self.aliases.get(name, name)
            index = self.named.get(name)
        return None if index is None else (name, index)

    def catch_up(self, keyspace: Keyspace, name: bytes, *, whole: bool) -> bool:
        """Index changed keys, with ``whole`` also delayed ones; return whether none are left."""
        found = self.find(name)
        if found is None:
            return True
        if whole:
            found[1].release()
        try:
            with budgeted(PART_STEPS):
                found[1].refresh(keyspace, is_read=False)
        except OverBudget:
            return False
        return True

    # -- tracking the keyspace -------------------------------------------------------------------

    def note(self, keyspace: Keyspace, key: bytes) -> None:
        """Record a changed key in every index, and the key of an index in the list of indexes."""
        value = keyspace.values.get(key)
        if type(value) is SearchIndex:
            self.named[key] = value
        elif key in self.named:
            del self.named[key]
        for index in self.named.values():
            index.note(key, *self.wait(keyspace))

    def wait(self, keyspace: Keyspace) -> tuple[int | None, int | None]:
        """Return the milliseconds and the number of searches after which a change is searchable."""
        delay = self.delay_ms
        return None if delay is None else keyspace.now_ms + delay, self.delay_reads

    def adopt(self, values: dict[bytes, Any]) -> None:
        """Replace the indexes with those in the values of a new keyspace."""
        self.named = {key: one for key, one in values.items() if type(one) is SearchIndex}

    def forget(self) -> None:
        """Remove all indexes and aliases after the keyspace was emptied."""
        self.named.clear()
        self.aliases.clear()

    def copy(self) -> Indexes:
        """Return a copy for a snapshot: only the aliases, because indexes are values of keys."""
        twin = Indexes(self.delay_ms, self.delay_reads)
        twin.aliases = dict(self.aliases)
        return twin


def find_index(keyspace: Keyspace, name: str) -> SearchIndex | None:
    """Return the search index of a database for a name or alias, or None."""
    found = None if keyspace.indexes is None else keyspace.indexes.find(encoded(name))
    return None if found is None else found[1]
