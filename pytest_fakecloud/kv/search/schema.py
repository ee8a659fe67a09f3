"""The definition of a search index, and the documents and words that it makes of keys.

If a field of a document is missing or has a value of the wrong type, only that field is left out,
without an error (specification of the vendor). Decided here: each scalar in an array, at any depth,
is a separate value, also in a string of a hash or a stream that is a JSON array, unless the field is
BOOL or FACET; a HYBRID field has the options of a TEXT field, and one embedding of all its values;
of a field that an entry of a stream has twice, the last value is indexed.

Text is tokenized, folded to lower case and stemmed in the steps of Tantivy, which the vendor uses. A
token is a run of letters and digits. A token of 40 bytes or more is dropped. Other tokens are
stemmed by the Snowball stemmer for the index's language. There are no stop words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import CommandError, one_line
from ..syntax import encoded
from ..values.containers import HashValue
from ..values.json import JsonError, JsonValue, parse_json

if TYPE_CHECKING:
    from ...similarity.dense import Floats

KEY_TYPES = {"JSON": "ReJSON-RL", "HASH": "hash", "STRING": "string", "STREAM": "stream"}
"""Maps the words that can follow ``ON`` in SEARCH.CREATE to types of keys."""
_KINDS_WITH = {
    "FAST": ("U64", "I64", "F64", "DATE", "BOOL", "KEYWORD"), "NOSTEM": ("TEXT", "HYBRID"),
    "NOTOKENIZE": ("TEXT", "HYBRID"),
}  # fmt: skip
RANGED = frozenset({"U64", "I64", "F64", "DATE", "KEYWORD"})
"""Types of fields that support range operators such as ``$gt``."""
FIELD_TYPES = ("TEXT", "U64", "I64", "F64", "BOOL", "DATE", "KEYWORD", "FACET", "HYBRID")

_MOST_FIELDS = 1000
"""Maximum number of fields of an index (decided here)."""


class SearchError(CommandError):
    """Raised for an invalid search. ``reason`` is the error reply without its class word."""

    def __init__(self, reason: str) -> None:
        super().__init__(one_line(f"ERR {reason}".encode("utf-8", "replace")))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of an index. ``source`` is its path in the document if it differs from the name."""

    name: str
    kind: str
    options: frozenset[str] = frozenset()
    source: str | None = None

    def __post_init__(self) -> None:
        for word, kinds in _KINDS_WITH.items():
            if word in self.options and self.kind not in kinds:
                raise SearchError(
                    f"syntax error: {word} is not an option of {self.kind} field '{self.name}'"
                )

    @property
    def path(self) -> str:
        """The dotted path of the value in a document, or the name of the hash field."""
        return self.source or self.name

    @property
    def is_text(self) -> bool:
        return self.kind in ("TEXT", "HYBRID")

    @property
    def is_number(self) -> bool:
        return self.kind in ("U64", "I64", "F64")

    def words(self) -> list[str]:
        """Return the field as SEARCH.DESCRIBE shows it: the name, the type and the options."""
        words = [self.name, self.kind, *sorted(self.options)]
        return words if self.source is None else [*words, "FROM", self.source]


@dataclass(frozen=True)
class Definition:
    """The definition of an index; the constructor raises `SearchError` for contradictions.

    ``prefixes`` are those of its keys or, for an index of a stream's entries, the stream's key.
    """

    kind: str
    prefixes: tuple[str, ...]
    fields: tuple[FieldSpec, ...]
    language: str = field(default="english", compare=False)

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise SearchError(
                f"syntax error: unknown language '{self.language}', expected one of "
                f"{', '.join(LANGUAGES)}"
            )
        for prefix, next_prefix in pairwise(sorted(self.prefixes)):
            if next_prefix.startswith(prefix):
                raise SearchError(
                    f"prefix '{prefix}' covers prefix '{next_prefix}': pass only the first"
                )
        if len(self.fields) > _MOST_FIELDS:
            raise SearchError(
                f"an index can have at most {_MOST_FIELDS} fields, not {len(self.fields)}"
            )
        for name, times in Counter(spec.name for spec in self.fields).items():
            if times > 1:
                raise SearchError(f"syntax error: field '{name}' is declared twice")

    @cached_property
    def by_name(self) -> dict[str, FieldSpec]:
        return {spec.name: spec for spec in self.fields}

    @cached_property
    def stream(self) -> bytes | None:
        """The key of the stream whose entries are the documents, or None if keys are."""
        return encoded(self.prefixes[0]) if self.kind == "STREAM" else None

    @cached_property
    def _starts(self) -> list[bytes]:
        return sorted(encoded(prefix) for prefix in self.prefixes)

    def covers(self, key: bytes) -> bool:
        if self.stream is not None:
            return key == self.stream
        # No prefix covers another one, so only the last one that sorts before the key can match.
        at = bisect_right(self._starts, key)
        return at > 0 and key.startswith(self._starts[at - 1])

    def described(self) -> dict[str, list[str]]:
        return {spec.name: spec.words()[1:] for spec in self.fields}

    def analyzer(self, spec: FieldSpec) -> Analyzer:
        return analyzer(self.language, "NOSTEM" not in spec.options, "NOTOKENIZE" in spec.options)


LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil",
    "turkish",
)  # fmt: skip

_LONGEST = 40
"""Length in bytes from which on words are not indexed."""
_ASCII_RUN = re.compile(r"[0-9A-Za-z]+")

_SIGNS = """
345 363-36f 5b0-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-657 659-65f 670 6d6-6dc 6e1-6e8 6ed
711-73f 7a6-7b0 816-817 81b-82c 897 8d4-8df 8e3-8e9 8f0-93b 93e-94c 94e-94f 955-963 981-983
9be-9cc 9d7-9e3 a01-a03 a3e-a4c a51-a75 a81-a83 abe-acc ae2-ae3 afa-afc b01-b03 b3e-b4c
b56-b63 b82-bcc bd7 c00-c04 c3e-c4c c55-c63 c81-c83 cbe-ccc cd5-d03 d3e-d4c d57-d63 d81-d83
dcf-df3 e31-e3a e4d eb1-eb9 ebb-ebc ecd f71-f83 f8d-fbc 102b-1036 1038 103b-103e 1056-109d
1712-1713 1732-1733 1752-1773 17b6-17c8 1885-1938 1a17-1a1b 1a55-1a5e 1a61-1a74 1abf-1ac0
1acc-1b04 1b35-1b43 1b80-1ba9 1bac-1bad 1be7-1bf1 1c24-1c36 1dd3-1df4 24b6-24e9 2de0-2dff
a674-a67b a69e-a69f a802 a80b-a827 a880-a8c3 a8c5 a8ff-a92a a947-a952 a980-a983 a9b4-a9bf
a9e5-aa4d aa7b-aabe aaeb-aaef aaf5 abe3-abea fb1e
"""
"""Characters up to U+FFFF, such as vowel signs, that are letters in Unicode but not in Python."""


@cache
def _signs() -> frozenset[int]:
    runs = (run.partition("-") for run in _SIGNS.split())
    ranges = (range(int(first, 16), int(last or first, 16) + 1) for first, _, last in runs)
    return frozenset(chain.from_iterable(ranges))


def _is_letter(character: str) -> bool:
    return character.isalnum() or (
        ord(character) in _signs() and unicodedata.category(character) in ("Mn", "Mc", "So")
    )


def spans(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii():
        for match in _ASCII_RUN.finditer(text):
            yield match.span()
        return
    at = 0
    for is_word, run in groupby(text, _is_letter):
        end = at + sum(1 for _ in run)
        if is_word:
            yield at, end
        at = end


class Analyzer:
    """Converts texts to tokens, stemmed by ``stem``; with ``whole``, a text is one token."""

    def __init__(self, stem: Callable[[str], str] | None, whole: bool = False) -> None:
        self.whole = whole
        self._stem = stem
        self.token = lru_cache(100_000)(self._token)

    def _token(self, word: str) -> str | None:
        """Return the token of a word, or None if the word is too long to be indexed."""
        if len(word.encode("utf-8", "replace")) >= _LONGEST:
            return None
        # Fold letter by letter, so that a final sigma becomes the same letter as any other sigma.
        folded = word.lower() if word.isascii() else "".join(map(str.lower, word))
        return folded if self._stem is None else self._stem(folded)

    def tokens(self, text: str) -> tuple[str | None, ...]:
        """Return the tokens of a text in order. Each dropped word is represented by None."""
        if self.whole:
            return (text,)
        return tuple(self.token(text[start:end]) for start, end in spans(text))


@lru_cache(maxsize=64)
def analyzer(language: str, stemmed: bool = True, whole: bool = False) -> Analyzer:
    if whole:
        return Analyzer(None, whole=True)
    # Disable the stemmer's own cache, which would store the stems a second time.
    from Stemmer import Stemmer

    return Analyzer(Stemmer(language, 0).stemWord if stemmed else None)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d))?", re.ASCII
)
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_MOST_LEVELS = 100
"""Maximum number of levels of a FACET path (decided here), because each level is indexed as a path."""
_NUMBER = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d{1,4})?", re.ASCII)


class Document(NamedTuple):
    """The values of a key's fields, for TEXT tuples of tokens; ``size`` is an estimate in bytes.

    ``vectors`` are the embeddings of HYBRID fields.

    The document of an entry of a stream has the entry's ID as its key.
    """

    key: bytes
    fields: dict[str, tuple[Any, ...]]
    size: int
    vectors: Mapping[str, Floats] = {}


def source_of(kind: str, value: Any) -> dict[Any, Any] | None:
    """Return the content of a key, or of an entry's fields, as a mapping, or None.

    Of a string, that is its JSON object.
    """
    root: Any = None
    if kind == "HASH":
        root = value.fields if isinstance(value, HashValue) else None
    elif kind == "STREAM":
        root = None if value is None else dict(zip(value[::2], value[1::2], strict=True))
    elif kind == "JSON":
        root = value.root if isinstance(value, JsonValue) else None
    elif isinstance(value, bytes | bytearray):
        with suppress(JsonError):
            root = parse_json(bytes(value))
    return root if isinstance(root, dict) else None


def values_at(root: Any, steps: list[str]) -> Iterator[Any]:
    if isinstance(root, list):
        for item in root:
            yield from values_at(item, steps)
    elif steps:
        if isinstance(root, dict) and steps[0] in root:
            yield from values_at(root[steps[0]], steps[1:])
    elif root is not None and not isinstance(root, dict):
        yield root


def array_in(text: str) -> list[Any] | None:
    """Return the JSON array that a string contains, or None if it contains something else."""
    if text[:1] != "[":
        return None
    try:
        parsed = parse_json(text.encode("utf-8", "surrogateescape"))
    except JsonError:
        return None
    return parsed if isinstance(parsed, list) else None


def _values_in(kind: str, text: str) -> Iterable[Any]:
    """Return the values in a string of a hash or a stream for a type of field, None for invalid ones."""
    items = None if kind in ("BOOL", "FACET") else array_in(text)
    if items is None:
        return (_FROM_STRING[kind](text),)
    return map(FROM_JSON[kind], values_at(items, []))


def make_document(definition: Definition, key: bytes, value: Any) -> Document | None:
    """Return the document for a key, or for the ID and the fields of a stream's entry.

    Returns None if the value cannot be indexed. An entry without a valid field is not a document,
    and an empty string in it is not a value (the vendor's documentation).
    """
    source = source_of(definition.kind, value)
    if source is None:
        return None
    is_entry = definition.stream is not None
    fields: dict[str, tuple[Any, ...]] = {}
    vectors: dict[str, Floats] = {}
    items = 0
    for spec in definition.fields:
        converted: Iterable[Any] = ()
        if is_entry or definition.kind == "HASH":
            raw = source.get(encoded(spec.path))
            if raw is not None and (raw or not is_entry):
                converted = _values_in(spec.kind, bytes(raw).decode("utf-8", "replace"))
        else:
            converted = map(FROM_JSON[spec.kind], values_at(source, spec.path.split(".")))
        values = tuple(value for value in converted if value is not None)
        text = "\n".join(values).strip() if spec.kind == "HYBRID" else ""
        if text:
            vectors[spec.name] = embedding(text)
            items += len(vectors[spec.name])
        if spec.is_text:
            values = tuple(map(definition.analyzer(spec).tokens, values))
        if values:
            fields[spec.name] = values
            items += sum(map(len, values)) if spec.is_text else len(values)
    if is_entry and not fields:
        return None
    return Document(key, fields, len(key) + 8 * items, vectors)


def embedding(text: str) -> Floats:
    """Return the vector of a text, which HYBRID fields are searched by."""
    # Imported here, because few indexes have such fields and NumPy takes long to import.
    from ...similarity.hashing import hash_dense

    return hash_dense(text)


def date_ms(text: str) -> int | None:
    """Convert an RFC 3339 string or a date (midnight UTC) to Unix milliseconds, others to None."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(text.upper() if match[1] else f"{text}T00Z")
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None


def facet_path(text: str) -> str | None:
    """Return a path such as ``/a/b`` without a trailing slash, or None if it is invalid."""
    path = text.rstrip("/") or "/"
    is_valid = text[:1] == "/" and "//" not in path and path.count("/") <= _MOST_LEVELS
    return path if is_valid else None


def _string(convert: Callable[[str], Any] = str) -> Callable[[Any], Any]:
    return lambda value: convert(value) if isinstance(value, str) else None


def _whole(low: int, high: int) -> Callable[[Any], int | None]:
    return lambda value: value if value.__class__ is int and low <= value <= high else None


FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "TEXT": _string(),
    "HYBRID": _string(),
    "KEYWORD": _string(),
    "U64": _whole(0, 2**64 - 1),
    "I64": _whole(-(2**63), 2**63 - 1),
    "F64": lambda value: float(value) if value.__class__ in (int, float) else None,
    "BOOL": lambda value: value if value.__class__ is bool else None,
    "DATE": _string(date_ms),
    "FACET": _string(facet_path),
}
"""Functions that convert a JSON value to a type of field, or return None if it does not fit."""


def _read_whole(take: Callable[[Any], int | None]) -> Callable[[str], int | None]:
    return lambda text: take(int(text)) if _INTEGER.fullmatch(text) else None


def _read_float(text: str) -> float | None:
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return None if math.isinf(value) else value


_FROM_STRING: dict[str, Callable[[str], Any]] = {
    **FROM_JSON,
    "U64": _read_whole(FROM_JSON["U64"]),
    "I64": _read_whole(FROM_JSON["I64"]),
    "F64": _read_float,
    "BOOL": {"true": True, "false": False}.get,
}
"""Functions that convert the string in a hash field to a type of field, or return None."""
