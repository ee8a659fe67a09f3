"""Finds the endpoint of a request among the routes of a service."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .messages import Request


@dataclass(frozen=True)
class Route:
    """One endpoint: the methods and the path pattern that it fakes.

    ``methods`` is a string of names (``"GET POST"``). ``pattern`` consists of literal segments and
    parameters: ``{name}`` is one non-empty raw segment; ``{name*}``, allowed only at the end, is
    the raw rest of the path including slashes (possibly empty). ``name`` is that of the endpoint in
    faults and in the journal, which several routes may share. ``endpoint`` takes the app and the
    request, or what the service's ``run_endpoint()`` passes instead of the app.

    ``lingers`` marks an endpoint that may wait or stream. Requests to it always use the socket, and the
    queue calls it without the lock of its engine. Nothing checks that it is set.
    ``changes`` marks an endpoint that accepts GET although it changes data.
    """

    methods: str
    pattern: str
    name: str
    endpoint: Callable[[Any, Request], object]
    lingers: bool = False
    changes: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters in the pattern."""
        return re.findall(r"\{(\w+)\*?\}", self.pattern)


class Match(NamedTuple):
    """The route of a request and the raw parameters in its path, or the methods for its path."""

    route: Route | None = None
    params: Mapping[str, str] = {}
    allowed: frozenset[str] = frozenset()
    """The methods of a path with another method; none if the path is unknown."""


class RouteTable:
    """All routes of a service. The most specific matching route wins: in the first segment in which the
    patterns differ, a literal precedes a parameter, and that the rest of the path. Two routes with the
    same method and pattern, whatever the names of its parameters, raise ``ValueError``.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        _check_different(self.routes)
        self._by_method: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in sorted(self.routes, key=_ranks):
            for method in route.methods.split():
                matchers = self._by_method.setdefault(method, [])
                matchers.append((_expression(route.pattern), route))

    def match(self, method: str, path: str) -> Match:
        """Return the route of a request, if it has one."""
        for expression, route in self._by_method.get(method, ()):
            matched = expression.fullmatch(path)
            if matched is not None:
                return Match(route, matched.groupdict(""))
        allowed = frozenset(
            other
            for other, matchers in self._by_method.items()
            if any(expression.fullmatch(path) for expression, _ in matchers)
        )
        return Match(allowed=allowed)

    def writes(self, method: str, path: str) -> bool:
        """Return whether a request may change data."""
        if method not in ("GET", "HEAD"):
            return True
        route = self.match(method, path).route
        return route is not None and route.changes

    def nearest(self, method: str, path: str) -> str:
        """Return the known routes most similar to a request, for reports."""
        shapes = [
            f"{m} {route.pattern}" for route in self.routes for m in sorted(route.methods.split())
        ]
        # Compare only the beginning of a long path, because the time grows with its length.
        near = difflib.get_close_matches(f"{method} {path[:200]}", shapes, n=3, cutoff=0.4)
        return ", ".join(near or shapes[:3])


def _check_different(routes: Sequence[Route]) -> None:
    by_request: dict[tuple[str, str], Route] = {}
    for route in routes:
        for method in route.methods.split():
            request = method, re.sub(r"\{\w+", "{", route.pattern)
            if request in by_request:
                raise ValueError(
                    f"{route.name} and {by_request[request].name} are both {method} {route.pattern}; "
                    "remove one of them, or change its method or pattern"
                )
            by_request[request] = route


def _ranks(route: Route) -> list[int]:
    """Return 0 for each literal segment of a pattern, 1 for a parameter and 2 for the rest."""
    segments = route.pattern.split("/")[1:]
    return [segment.startswith("{") + segment.endswith("*}") for segment in segments]


def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression."""
    if pattern == "/":
        return re.compile("/")
    expression, optional = "", "/?"
    for segment in pattern.strip("/").split("/"):
        if segment.endswith("*}"):
            tail = f"/(?P<{segment[1:-2]}>.*)"
            expression, optional = (f"{expression}(?:{tail})?" if expression else tail), ""
        elif segment.startswith("{"):
            expression += f"/(?P<{segment[1:-1]}>[^/]+)"
        else:
            expression += "/" + re.escape(segment)
    return re.compile(expression + optional, re.DOTALL)
