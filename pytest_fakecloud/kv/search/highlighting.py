"""Highlights the words of a filter in the content of search results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..values.json import copy_json
from .analysis import Analyzer, spans
from .clauses import Clause
from .schema import Definition, SearchError


@dataclass(frozen=True, slots=True)
class Highlight:
    """The fields in which matching words are highlighted, and the tags to put around the words."""

    fields: tuple[str, ...]
    tags: tuple[str, str] = ("<em>", "</em>")


@dataclass(frozen=True, slots=True)
class TermMarker:
    """Puts tags around the words of a text whose tokens are among the given terms."""

    analyzer: Analyzer
    terms: set[str]
    tags: tuple[str, str]

    def mark(self, text: str) -> str:
        opening, closing = self.tags
        if self.analyzer.whole:
            return f"{opening}{text}{closing}" if text in self.terms else text
        parts, last = [], 0
        for start, end in spans(text):
            word = text[start:end]
            if self.analyzer.token(word) in self.terms:
                parts += [text[last:start], opening, word, closing]
                last = end
        return "".join([*parts, text[last:]])


def term_markers(
    definition: Definition, clause: Clause, highlight: Highlight
) -> dict[str, TermMarker]:
    """Return markers for the terms of a clause, by the path of a field in a document."""
    terms: dict[str, set[str]] = {}
    for name, term in clause.highlighted_terms():
        terms.setdefault(name, set()).add(term)
    markers = {}
    for name in highlight.fields:
        spec = definition.by_name.get(name)
        if spec is None:
            raise SearchError(f"Unknown field: {name}")
        if spec.is_text and name in terms:
            analyzer = definition.analyzer(spec)
            markers[spec.path] = TermMarker(analyzer, terms[name], highlight.tags)
    return markers


def highlight_document(source: dict[str, Any], markers: dict[str, TermMarker]) -> dict[str, Any]:
    """Return a copy of a JSON document in which the terms of each path's marker are highlighted."""
    document: dict[str, Any] = copy_json(source)
    for path, marker in markers.items():
        _highlight_at_path(document, path.split("."), marker)
    return document


def _highlight_at_path(value: Any, path: list[str], marker: TermMarker) -> Any:
    """Highlight the strings at a path and return the result. Containers are changed in place."""
    if isinstance(value, list):
        value[:] = [_highlight_at_path(item, path, marker) for item in value]
    elif path:
        name, *rest = path
        if isinstance(value, dict) and name in value:
            value[name] = _highlight_at_path(value[name], rest, marker)
    elif isinstance(value, str):
        return marker.mark(value)
    return value
