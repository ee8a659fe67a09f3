"""The URLs that a route of the destinations table matches.

A prefix ends at a path segment: ``https://app/hook`` matches ``/hook`` and ``/hook/1``, but not
``/hooks``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ...core.errors import ContractError, shown
from ...core.field_types import TEXT, is_pattern
from ...core.matching import Question
from ..wire.headers import named_url
from ..wire.values import as_text

_DEFAULT_PORTS = {"http": 80, "https": 443}
Url: TypeAlias = str | re.Pattern[str] | Callable[[str], object]
"""The URLs of a route: a prefix, a pattern with ``*``, a regular expression or a function."""


class SplitUrl(NamedTuple):
    """A URL split for comparison. ``origin`` is empty if the URL is malformed."""

    text: str
    origin: str
    rest: str


@dataclass(frozen=True)
class Pattern:
    """Matches URLs by a wildcard, a regular expression or a function.

    Its ``length`` is less than the length of any prefix; ``"*"`` has the smallest ``length``.
    """

    wanted: object
    asked: Question = field(compare=False)
    length: int = 0

    def matches(self, url: SplitUrl) -> bool:
        # "*" matches every URL, so skip the comparison.
        return self.length < 0 or self.asked.agrees(url.text)


class Prefix(NamedTuple):
    """Matches the URLs of an origin at or below a path. Only whole path segments match."""

    origin: str
    rest: str
    length: int
    """The rank of the scope among all scopes that match a URL."""

    def matches(self, url: SplitUrl) -> bool:
        if self.origin != url.origin or not url.rest.startswith(self.rest):
            return False
        following = url.rest[len(self.rest) : len(self.rest) + 1]
        # A prefix with a query matches further parameters.
        return self.rest[-1:] in ("", "/") or following in ("", "/", "?", "&")


UrlScope: TypeAlias = Pattern | Prefix
"""The URLs that a route matches. If several scopes match a URL, the longest one wins."""


def scope_of(url: object) -> UrlScope:
    """Return the scope for a URL argument; raise ``ContractError`` if it is not a destination."""
    __tracebackhide__ = True
    split = split_text(named_url(url) or url) if isinstance(url, str) else SplitUrl("", "", "")
    has_wildcard = url == "*" or (split.origin and "*" in split.text)
    if has_wildcard or callable(url) or is_pattern(url):
        return Pattern(url, Question("url", url, TEXT), length=-1 if url == "*" else 0)
    if not split.origin:
        raise ContractError(
            f"{shown(url)} is not a destination; pass an absolute URL such as "
            "'https://app.example.com/hook', one with * for anything, a pattern, a function of the "
            "URL, or '*' for all other destinations"
        )
    rest = "" if split.rest == "/" else split.rest
    return Prefix(split.origin, rest, len(split.origin) + len(rest))


def split_wire(url: str) -> SplitUrl:
    """Split a URL that has one character per byte, as messages store it."""
    return split_text(url if url.isascii() else as_text(url))


@lru_cache(maxsize=1024)  # A test delivers to few URLs, but often.
def split_text(url: str) -> SplitUrl:
    """Split a URL into a comparable origin, empty if the URL is malformed, and the rest."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return SplitUrl(url, "", url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").rstrip(".")
    if scheme not in _DEFAULT_PORTS or not host:
        return SplitUrl(url, "", url)
    origin = f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}"
    return SplitUrl(url, origin, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
