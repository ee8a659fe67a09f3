"""Route tables over raw request paths, with hints at the nearest route."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias


class Route(NamedTuple):
    """One endpoint: the methods and path pattern it answers.

    ``methods`` is a text of names (``"GET POST"``), ``pattern`` has literal segments, ``{name}`` for
    one raw segment that is not empty and ``{name*}`` last for the raw rest, slashes included (it may
    be empty). ``name`` is what faults and the journal call it. ``lingers`` marks an endpoint that may
    wait or stream: a request to it always takes the socket.
    """

    methods: str
    pattern: str
    name: str
    endpoint: Callable[[Any], object]
    lingers: bool = False

    @property
    def allowed(self) -> frozenset[str]:
        """The methods as a set."""
        return frozenset(self.methods.split())


RouteMatch: TypeAlias = tuple[Route, dict[str, str]] | frozenset[str] | None
"""A route and the raw parameters; or the methods the path takes, when it exists for others; or None."""


class _Entry(NamedTuple):
    shape: re.Pattern[str]
    allowed: frozenset[str]
    number: int


class RouteTable:
    """All routes of a service.

    The first that fits wins, in the order given, except that routes with a literal first segment
    come before those that begin with a parameter.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        # Every fake has a table of its own, for its endpoints are bound methods; what can be
        # shared by all fakes of a service is made once.
        self._by_head, self._others = _index(tuple((r.methods, r.pattern) for r in self.routes))

    def find(self, method: str, path: str) -> RouteMatch:
        """Where a request goes: a route, the methods that would be right, or nowhere."""
        entries = self._by_head.get(path.split("/", 2)[1], self._others)
        others: frozenset[str] = frozenset()
        for shape, allowed, number in entries:
            found = shape.fullmatch(path)
            if found is not None:
                if method in allowed:
                    return self.routes[number], found.groupdict("")
                others |= allowed
        return others or None

    def nearest(self, method: str, path: str) -> str:
        """A hint for reports: the known routes most like the request."""
        import difflib

        shapes = [f"{m} {route.pattern}" for route in self.routes for m in sorted(route.allowed)]
        # Comparing costs the product of the lengths, and no pattern is as long.
        near = difflib.get_close_matches(f"{method} {path[:200]}", shapes, n=3, cutoff=0.4)
        return ", ".join(near or shapes[:3])


@lru_cache(maxsize=256)
def _index(
    routes: tuple[tuple[str, str], ...],
) -> tuple[dict[str, Sequence[_Entry]], Sequence[_Entry]]:
    literal: dict[str, list[_Entry]] = {}
    others: list[_Entry] = []
    for number, (methods, pattern) in enumerate(routes):
        entry = _Entry(_shape(pattern), frozenset(methods.split()), number)
        head = pattern.split("/", 2)[1]
        if head.startswith("{"):
            others.append(entry)
        else:
            literal.setdefault(head, []).append(entry)
    return {head: entries + others for head, entries in literal.items()}, others


@lru_cache(maxsize=1024)
def _shape(pattern: str) -> re.Pattern[str]:
    """The expression of a pattern: one match is half as dear as taking a path apart."""
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
