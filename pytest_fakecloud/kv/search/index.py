"""A search index: its documents and postings, its pending changes, and the indexes of a database.

The documents are keys or, if the index is bound to a stream, the stream's entries, named by their
IDs. Postings are the documents, by increasing numbers, that contain each term or value of a field. A
write only records which keys changed, and the next search creates their documents. Therefore the
cost of a write does not depend on the size of the index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...core.budget import Budgeted, OverBudget, spend
from ..engine.keyspace import Keyspace
from ..syntax import encoded
from ..values.stream import StreamValue, format_id, make_id
from ..values.types import type_name
from .schema import KEY_TYPES, Definition, Document, SearchError, make_document

if TYPE_CHECKING:
    from ...similarity.table import VectorTable

_STEPS, _STEPS_PER_BYTE = 100, 3
"""Budget steps for a document, and for each byte of its size, where a word has eight bytes."""


class SearchIndex:
    """A search index, stored as the value of a key.

    ``documents`` are numbered in the order in which they were indexed. A changed document is
    indexed again under a new number.

    A changed key or entry passes through these stages: it is delayed in ``waiting`` (only if a delay
    is set), then in ``_changed`` until ``refresh()`` makes its document, and the document's number is in
    ``_unposted`` until ``refresh()`` adds its terms and values to the postings. The postings are
    empty until the first ``refresh()``, which adds all documents to them.
    """

    type_name = "search"

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.documents: dict[int, Document] = {}
        self.size = 0
        """The estimated total size of the documents in bytes (decided here)."""
        self.waiting: dict[bytes, tuple[int | None, int | None]] = {}
        """For each delayed key or ID, the time (Unix ms) and the number of searches to wait for."""
        self.numbers: dict[bytes, int] = {}
        """The number of each key's document."""
        self._changed: OrderedDict[bytes, None] = OrderedDict()
        self._postings: dict[str, TextPostings | ValuePostings] = {}
        self._vectors: dict[str, VectorTable[int]] = {}
        """The embeddings of HYBRID fields by document number, changed together with the postings."""
        self._unposted: deque[int] = deque()
        """The numbers of the newest documents, whose terms and values are not in the postings yet."""
        self._next = 0

    # -- the value of a key ----------------------------------------------------------------------

    def encoding(self, config: object) -> str:
        return "raw"

    def copy(self) -> SearchIndex:
        """Return a copy of the index. Documents are shared, because they are immutable."""
        other = SearchIndex(self.definition)
        other.documents = dict(self.documents)
        other.size = self.size
        other.waiting = dict(self.waiting)
        other.numbers = dict(self.numbers)
        other._changed = self._changed.copy()
        other._next = self._next
        return other

    def to_python(self) -> dict[str, Any]:
        definition = self.definition
        return {
            "type": definition.kind,
            "prefixes": list(definition.prefixes),
            "language": definition.language,
            "schema": definition.described(),
        }

    def value_of(self, keyspace: Keyspace, name: bytes) -> Any:
        """Return the value of a key or, for the ID of a stream's entry, its fields; None if missing."""
        stream = self.definition.stream
        if stream is None:
            return keyspace.values.get(name)
        value = keyspace.values.get(stream)
        return value.get(_entry_id(name)) if isinstance(value, StreamValue) else None

    def note_change(
        self, key: bytes, changed: Changed | None, due_ms: int | None, reads: int | None
    ) -> None:
        """Record a changed key. It becomes searchable immediately unless a delay is given.

        Of a stream, ``changed`` are the changed entries.
        """
        if not self.definition.covers(key):
            return
        names: Iterable[bytes] = (key,)
        if self.definition.stream is not None:
            names = () if changed is None else map(format_id, changed.ids)
            if changed is None or changed.is_new:
                names = dict.fromkeys([*self.numbers, *self.waiting, *self._changed, *names])
        self._note(names, due_ms, reads)

    def _note(self, names: Iterable[bytes], due_ms: int | None, reads: int | None) -> None:
        for name in names:
            if due_ms is None and reads is None:
                self._changed[name] = None
                self._changed.move_to_end(name)
            else:
                self.waiting.pop(name, None)
                self.waiting[name] = due_ms, reads

    def scan(self, keyspace: Keyspace, due_ms: int | None, reads: int | None) -> None:
        if self.definition.stream is not None:
            self._note(map(format_id, self.follow(keyspace)), due_ms, reads)
            return
        kind = KEY_TYPES[self.definition.kind]
        names = [key for key in keyspace if type_name(keyspace.values[key]) == kind]
        self._note([key for key in names if self.definition.covers(key)], due_ms, reads)

    def follow(self, keyspace: Keyspace) -> list[int]:
        """Have the stream record changed entries from now on; return the IDs of those that exist."""
        stream = self.definition.stream
        value = None if stream is None else keyspace.find(stream)
        if not isinstance(value, StreamValue):
            return []
        value.take_changed()
        return [entry_id for entry_id, _ in value.range()]

    def clear(self) -> None:
        self.documents.clear()
        self.size = 0
        self.numbers.clear()
        self._changed.clear()
        self.waiting.clear()
        self._postings = {}
        self._vectors = {}
        self._unposted.clear()

    def release_all(self) -> None:
        self._changed |= dict.fromkeys(self.waiting)
        self.waiting.clear()

    def refresh(self, keyspace: Keyspace, is_read: bool = True) -> None:
        """Index the changed keys that need not wait. After `OverBudget`, the next call continues."""
        keyspace.purge()
        for key, (due_ms, reads) in list(self.waiting.items()):
            if (due_ms is not None and due_ms <= keyspace.now_ms) or (is_read and reads == 0):
                del self.waiting[key]
                self._changed[key] = None
            elif is_read and reads is not None:
                self.waiting[key] = due_ms, reads - 1
        while self._changed:
            key, _ = self._changed.popitem(last=False)
            self._forget(key)
            value = self.value_of(keyspace, key)
            document = None if value is None else make_document(self.definition, key, value)
            if document is not None:
                self._add(document)
            spend(_STEPS + (0 if document is None else _STEPS_PER_BYTE * document.size))
        if not self._postings:
            self._postings = {
                spec.name: _POSTINGS.get(spec.kind, ValuePostings)()
                for spec in self.definition.fields
            }
            self._vectors = {
                spec.name: _vector_table()
                for spec in self.definition.fields
                if spec.kind == "HYBRID"
            }
            self._unposted.extend(self.documents)
        while self._unposted:
            number = self._unposted.popleft()
            document = self.documents.get(number)
            if document is not None:
                for name, values in document.fields.items():
                    self._postings[name].add(number, values)
                for name, vector in document.vectors.items():
                    self._vectors[name].put(number, vector)
                spend(_STEPS_PER_BYTE * document.size)

    def _add(self, document: Document) -> None:
        number = self._next
        self._next += 1
        self.numbers[document.key] = number
        self.documents[number] = document
        self.size += document.size
        if self._postings:
            self._unposted.append(number)

    def _forget(self, key: bytes) -> None:
        number = self.numbers.pop(key, None)
        if number is None:
            return
        document = self.documents.pop(number)
        self.size -= document.size
        # Documents are posted in the order of their numbers.
        if self._postings and (not self._unposted or number < self._unposted[0]):
            for name, values in document.fields.items():
                self._postings[name].remove(number, values)
            for name in document.vectors:
                self._vectors[name].remove(number)

    def text(self, name: str) -> TextPostings:
        postings = self._postings[name]
        assert isinstance(postings, TextPostings)
        return postings

    def values(self, name: str) -> ValuePostings:
        postings = self._postings[name]
        assert isinstance(postings, ValuePostings)
        return postings

    def vectors(self, name: str) -> VectorTable[int]:
        """Return the embeddings of a HYBRID field by document number."""
        return self._vectors[name]

    def column(self, name: str) -> dict[int, tuple[Any, ...]]:
        """Return the values of a fast field by document number; raise `SearchError` for others."""
        spec = self.definition.by_name.get(name)
        if spec is None or "FAST" not in spec.options:
            # This is Tantivy's error message, as users of the vendor reported it.
            raise SearchError(f"Field `{name}` is not a fast field")
        return self.values(name).of

    def describe_values(self, number: int, name: str) -> str:
        values = self.documents[number].fields.get(name)
        if values is None:
            return f"the document has no '{name}' that could be indexed"
        if values[0].__class__ is tuple:
            texts = (" ".join(token for token in tokens if token) for tokens in values)
            return f"its '{name}' was indexed as [{' | '.join(texts)}]"
        return f"its '{name}' is {', '.join(map(repr, values))}"


def _vector_table() -> VectorTable[int]:
    # Imported here, because few indexes have embeddings and NumPy takes long to import.
    from ...similarity.dense import Similarity
    from ...similarity.hashing import DEFAULT_DIMENSION
    from ...similarity.table import VectorTable

    return VectorTable(DEFAULT_DIMENSION, Similarity.COSINE)


def _entry_id(name: bytes) -> int:
    milliseconds, _, sequence = name.partition(b"-")
    return make_id(int(milliseconds), int(sequence)) if sequence else -1


class Changed(NamedTuple):
    """The changed entries of a stream, whose IDs are all of them if the stream is new."""

    ids: list[int]
    is_new: bool


def _changed_entries(value: Any) -> Changed | None:
    """Return the entries of a stream that changed since the last call; None for other values."""
    if not isinstance(value, StreamValue):
        return None
    changed = value.take_changed()
    if changed is not None:
        return Changed(changed, is_new=False)
    return Changed([entry_id for entry_id, _ in value.range()], is_new=True)


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
    """The indexes of a database. A change is searchable after ``delay_ms`` or ``delay_reads``."""

    def __init__(self, delay_ms: int | None = None, delay_reads: int | None = None) -> None:
        self.named: dict[bytes, SearchIndex] = {}
        self.aliases: dict[bytes, bytes] = {}
        self.delay_ms = delay_ms
        self.delay_reads = delay_reads

    def name_of(self, name: bytes) -> bytes:
        """Return the name of the index for a name or alias. Names take precedence over aliases."""
        return name if name in self.named else self.aliases.get(name, name)

    def find(self, name: bytes) -> SearchIndex | None:
        return self.named.get(self.name_of(name))

    def catch_up(self, keyspace: Keyspace, name: bytes, *, whole: bool) -> bool:
        """Index changed keys, with ``whole`` also delayed ones; return whether none are left."""
        index = self.find(name)
        if index is None:
            return True
        if whole:
            index.release_all()
        try:
            with Budgeted(PART_STEPS):
                index.refresh(keyspace, is_read=False)
        except OverBudget:
            return False
        return True

    def note_change(self, keyspace: Keyspace, key: bytes) -> None:
        """Record a changed key in every index, and the key of an index in the list of indexes."""
        value = keyspace.values.get(key)
        if type(value) is SearchIndex:
            self.named[key] = value
        else:
            dropped = self.named.pop(key, None)
            if dropped is not None:
                _stop_following(keyspace, dropped)
        changed = _changed_entries(value) if self.has_stream(key) else None
        for index in self.named.values():
            index.note_change(key, changed, *self.delay_from(keyspace.now_ms))

    def has_stream(self, key: bytes) -> bool:
        """Return whether an index is bound to the stream with this key."""
        return any(index.definition.stream == key for index in self.named.values())

    def delay_from(self, now_ms: int) -> tuple[int | None, int | None]:
        """Return the time and the number of searches after which a change made now is searchable."""
        return None if self.delay_ms is None else now_ms + self.delay_ms, self.delay_reads

    def adopt(self, values: dict[bytes, Any]) -> None:
        self.named = {key: value for key, value in values.items() if type(value) is SearchIndex}

    def clear(self) -> None:
        self.named.clear()
        self.aliases.clear()

    def copy(self) -> Indexes:
        """Return a copy for a snapshot: only the aliases, because indexes are values of keys."""
        other = Indexes(self.delay_ms, self.delay_reads)
        other.aliases = dict(self.aliases)
        return other


def _stop_following(keyspace: Keyspace, index: SearchIndex) -> None:
    stream = index.definition.stream
    value = None if stream is None else keyspace.values.get(stream)
    if isinstance(value, StreamValue):
        value.stop_recording()


def find_index(keyspace: Keyspace, name: str) -> SearchIndex | None:
    """Return the search index of a database for a name or alias, or None."""
    return None if keyspace.indexes is None else keyspace.indexes.find(encoded(name))


Node: TypeAlias = "dict[str, Node | list[str]]"
"""A node of the prefix tree. It maps the next character to a child node, or to a list of terms.

The list contains all terms with this prefix. The empty string maps to the term ending at the node.
"""
_DEEPEST = 40
"""Maximum depth of the tree. Deeper levels would cost memory without making searches faster."""


def _insert(root: Node, term: str) -> None:
    node = root
    for depth, character in enumerate(term, 1):
        child = node.get(character)
        if child is None:
            node[character] = [term]
            return
        if isinstance(child, list):
            if depth >= _DEEPEST:
                child.append(term)
                return
            # Above the deepest level, a list has one term. Move it down a level.
            child = node[character] = {child[0][depth : depth + 1]: child}
        node = child
    node[""] = [term]


def below(node: Node | list[str]) -> Iterator[str]:
    """Yield the terms in the subtree of a node, in any order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            yield from node
        else:
            waiting.extend(node.values())


GAP = 1 << 20
"""Number of positions between two texts in the same field, so that no phrase matches across texts."""


class TextPostings:
    """The tokens of a TEXT field. ``terms`` maps a token to its positions in each document.

    A token stays, without positions, when no document contains it any more.
    """

    def __init__(self) -> None:
        self.terms: dict[str, dict[int, list[int]]] = {}
        self.lengths: dict[int, int] = {}
        self.total = 0
        """Total number of tokens in all documents."""
        self._root: Node = {}
        self._new: list[str] = []
        """Tokens that are not in the prefix tree yet."""

    @property
    def root(self) -> Node:
        """The root of a prefix tree of all tokens, which must not be changed."""
        for term in self._new:
            _insert(self._root, term)
        self._new = []
        return self._root

    def beginning(self, prefix: str) -> Iterator[str]:
        """Yield the tokens that start with ``prefix``, in any order."""
        node: Node | list[str] = self.root
        for character in prefix:
            if isinstance(node, list):
                break
            node = node.get(character, [])
        return (term for term in below(node) if term.startswith(prefix))

    def add(self, number: int, texts: Iterable[tuple[str | None, ...]]) -> None:
        length = 0
        for nth, tokens in enumerate(texts):
            for at, token in enumerate(tokens, nth * GAP):
                if token is None:
                    continue
                length += 1
                places = self.terms.get(token)
                if places is None:
                    places = self.terms[token] = {}
                    self._new.append(token)
                places.setdefault(number, []).append(at)
        self.lengths[number] = length
        self.total += length

    def remove(self, number: int, texts: Iterable[tuple[str | None, ...]]) -> None:
        self.total -= self.lengths.pop(number)
        for token in {token for tokens in texts for token in tokens if token is not None}:
            del self.terms[token][number]


_STARTS = {"$gte": bisect_left, "$gt": bisect_right}
_ENDS = {"$lte": bisect_right, "$lt": bisect_left}
"""Functions that return the position at which a bound lets sorted values start or end."""


_FEW = 64
"""Number of new values from which sorting all values is quicker than inserting each."""


class ValuePostings:
    """The values of other fields: documents by value, and values in order by document (``of``).

    A value stays, without documents, when no document has it any more.
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, set[int]] = {}
        self.of: dict[int, tuple[Any, ...]] = {}
        self._sorted: list[Any] = []
        self._new: list[Any] = []
        """Values that are not in order yet."""

    def add(self, number: int, values: tuple[Any, ...]) -> None:
        self.of[number] = values
        for value in values:
            documents = self.numbers.get(value)
            if documents is None:
                self.numbers[value] = {number}
                self._new.append(value)
            else:
                documents.add(number)

    def remove(self, number: int, values: tuple[Any, ...]) -> None:
        del self.of[number]
        for value in set(values):
            self.numbers[value].discard(number)

    def in_order(self) -> list[Any]:
        """Return all values in order. The list must not be changed."""
        if len(self._new) < _FEW:
            for value in self._new:
                insort(self._sorted, value)
        else:
            self._sorted += self._new
            self._sorted.sort()
        self._new = []
        return self._sorted

    def between(self, bounds: Mapping[str, Any]) -> set[int]:
        """Return the documents that have a value within bounds such as ``{"$gte": 1, "$lt": 5}``."""
        values = self.in_order()
        starts = [_STARTS[word](values, bounds[word]) for word in bounds if word in _STARTS]
        ends = [_ENDS[word](values, bounds[word]) for word in bounds if word in _ENDS]
        # Of two bounds on a side, the narrower one applies; of two equal ones, the exclusive one.
        first, end = max(starts, default=0), min(ends, default=len(values))
        having = [self.numbers[value] for value in values[first:end]]
        return set().union(*having)


class FacetPostings(ValuePostings):
    """The paths of a FACET field. A document is also found by the ancestors of its paths."""

    def add(self, number: int, values: tuple[Any, ...]) -> None:
        super().add(number, _with_ancestors(values))
        self.of[number] = values

    def remove(self, number: int, values: tuple[Any, ...]) -> None:
        super().remove(number, _with_ancestors(values))


_POSTINGS: dict[str, type[TextPostings | ValuePostings]] = {
    "TEXT": TextPostings,
    "HYBRID": TextPostings,
    "FACET": FacetPostings,
}
"""The postings of each type of fields; all other types have ``ValuePostings``."""


def _with_ancestors(paths: tuple[str, ...]) -> tuple[str, ...]:
    ancestors = {"/"}
    for path in paths:
        while path and path not in ancestors:
            ancestors.add(path)
            path = path.rpartition("/")[0]
    return tuple(ancestors)
