"""The definition of a search index: the type of its keys, their prefixes, and the fields."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ..table.syntax import encoded
from .analysis import LANGUAGES, Analyzer, analyzer

KEY_TYPES = {"JSON": "ReJSON-RL", "HASH": "hash", "STRING": "string"}
"""Maps the words that can follow ``ON`` in SEARCH.CREATE to types of keys."""
_KINDS_WITH = {
    "FAST": ("U64", "I64", "F64", "DATE", "BOOL"), "NOSTEM": ("TEXT",), "NOTOKENIZE": ("TEXT",),
}  # fmt: skip
"""The types of fields that can have each option."""
RANGED = frozenset({"U64", "I64", "F64", "DATE", "KEYWORD"})
"""Types of fields that support range operators such as ``$gt``."""
FIELD_TYPES = ("TEXT", "U64", "I64", "F64", "BOOL", "DATE", "KEYWORD", "FACET")

_MOST_FIELDS = 1000
"""Maximum number of fields of an index (decided here)."""


class SearchError(Exception):
    """Raised for an invalid search. The message is the error reply without its class word."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of an index. ``source`` is its path in the document if it differs from the name."""

    name: str
    kind: str
    fast: bool = False
    nostem: bool = False
    notokenize: bool = False
    source: str | None = None

    def __post_init__(self) -> None:
        for word, given in self._options():
            if given and self.kind not in _KINDS_WITH[word]:
                raise SearchError(
                    f"syntax error: {word} is not an option of {self.kind} field '{self.name}'"
                )

    def _options(self) -> tuple[tuple[str, bool], ...]:
        return ("FAST", self.fast), ("NOSTEM", self.nostem), ("NOTOKENIZE", self.notokenize)

    @property
    def path(self) -> str:
        """The dotted path of the value in a document, or the name of the hash field."""
        return self.source or self.name

    @property
    def is_text(self) -> bool:
        return self.kind == "TEXT"

    @property
    def is_number(self) -> bool:
        """Whether the field contains numbers other than dates."""
        return self.kind in ("U64", "I64", "F64")

    @property
    def is_column(self) -> bool:
        """Whether the field's values can be aggregated. Values of KEYWORD fields always can."""
        return self.fast or self.kind == "KEYWORD"

    def words(self) -> list[str]:
        """Return the field as SEARCH.DESCRIBE shows it: the name, the type and the options."""
        words = [self.name, self.kind, *(word for word, given in self._options() if given)]
        return words if self.source is None else [*words, "FROM", self.source]


@dataclass(frozen=True)
class Definition:
    """The definition of an index; the constructor raises `SearchError` for contradictions."""

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
        for one, other in pairwise(sorted(self.prefixes)):
            if other.startswith(one):
                raise SearchError(f"prefix '{one}' covers prefix '{other}': pass only the first")
        if len(self.fields) > _MOST_FIELDS:
            raise SearchError(
                f"an index can have at most {_MOST_FIELDS} fields, not {len(self.fields)}"
            )
        for name, times in Counter(each.name for each in self.fields).items():
            if times > 1:
                raise SearchError(f"syntax error: field '{name}' is declared twice")

    @cached_property
    def by_name(self) -> dict[str, FieldSpec]:
        return {each.name: each for each in self.fields}

    @cached_property
    def _starts(self) -> list[bytes]:
        return sorted(encoded(prefix) for prefix in self.prefixes)

    def covers(self, key: bytes) -> bool:
        # No prefix covers another one, so only the last one that sorts before the key can match.
        at = bisect_right(self._starts, key)
        return at > 0 and key.startswith(self._starts[at - 1])

    def described(self) -> dict[str, list[str]]:
        """Return the type and the options of each field, by its name."""
        return {each.name: each.words()[1:] for each in self.fields}

    def analyzer(self, spec: FieldSpec) -> Analyzer:
        return analyzer(self.language, not spec.nostem, spec.notokenize)
