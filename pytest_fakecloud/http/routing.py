"""Matches raw request paths against routes, and finds the routes most similar to an unknown path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias


class Route(NamedTuple):
    """One endpoint: the methods and the path pattern that it handles.

    ``methods`` is a string of names (``"GET POST"``). ``pattern`` consists of literal segments and
    parameters: ``{name}`` is one non-empty raw segment; ``{name*}``, allowed only at the end, is
    the raw rest of the path including slashes (possibly empty). ``name`` identifies the route in
    faults and in the journal. ``lingers`` marks an endpoint that may wait or stream; requests to it
    always use the socket.
    """

    methods: str
    pattern: str
    name: str
    endpoint: Callable[[Any], object]
    lingers: bool = False

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(self.methods.split())


RouteMatch: TypeAlias = tuple[Route, dict[str, str]] | frozenset[str] | None
"""A route and its raw parameters; the path's methods if another one was asked for; or None."""


class _Entry(NamedTuple):
    number: int
    pattern: str
    allowed: frozenset[str]


_INDEXED = 2
"""Number of leading segments by which routes are indexed."""


class RouteTable:
    """All routes of a service. The first matching route wins, but routes with a literal first
    segment precede routes that begin with a parameter.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        # Fakes of a service have their own endpoints (bound methods), but share their index.
        self._by_head = _index(tuple((r.methods, r.pattern) for r in self.routes))

    def find(self, method: str, path: str) -> RouteMatch:
        """Return the result of searching for a request's route."""
        segments = tuple(path.split("/", _INDEXED + 1)[1 : _INDEXED + 1])
        while segments and segments not in self._by_head:
            segments = segments[:-1]
        others: frozenset[str] = frozenset()
        for number, pattern, allowed in self._by_head[segments]:
            found = _shape(pattern).fullmatch(path)
            if found is not None:
                if method in allowed:
                    return self.routes[number], found.groupdict("")
                others |= allowed
        return others or None

    def nearest(self, method: str, path: str) -> str:
        """Return the known routes most similar to a request, for reports."""
        import difflib

        shapes = [f"{m} {route.pattern}" for route in self.routes for m in sorted(route.allowed)]
        # Compare only the beginning of a long path, because the time grows with its length.
        near = difflib.get_close_matches(f"{method} {path[:200]}", shapes, n=3, cutoff=0.4)
        return ", ".join(near or shapes[:3])


@lru_cache(maxsize=256)
def _index(routes: tuple[tuple[str, str], ...]) -> Mapping[tuple[str, ...], Sequence[_Entry]]:
    """Return the routes that may match a path, by the path's first literal segments."""
    by_own: dict[tuple[str, ...], list[_Entry]] = {(): []}
    for number, (methods, pattern) in enumerate(routes):
        entry = _Entry(number, pattern, frozenset(methods.split()))
        by_own.setdefault(_head(pattern), []).append(entry)
    found = {}
    for head in by_own:
        starts = [head[:length] for length in range(1, len(head) + 1)]
        found[head] = sorted(entry for start in starts for entry in by_own.get(start, ()))
        found[head] += by_own[()]
    return found


def _head(pattern: str) -> tuple[str, ...]:
    """Return the literal segments with which a pattern begins, at most ``_INDEXED``."""
    segments = pattern.split("/")[1 : _INDEXED + 1]
    return tuple(takewhile(lambda segment: not segment.startswith("{"), segments))


@lru_cache(maxsize=1024)
def _shape(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression, which is twice as fast as splitting the path."""
    if pattern == "/":
        return re.compile("/")
    expression, optional = "", "/?"
    for segment in pattern.strip("/").split("/"):
        if segment.endswith("*}"):
            rest = f"/(?P<{segment[1:-2]}>.*)"
            expression, optional = (f"{expression}(?:{rest})?" if expression else rest), ""
        elif segment.startswith("{"):
            expression += f"/(?P<{segment[1:-1]}>[^/]+)"
        else:
            expression += "/" + re.escape(segment)
    return re.compile(expression + optional, re.DOTALL)
