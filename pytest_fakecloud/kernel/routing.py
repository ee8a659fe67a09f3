"""Route tables over raw request paths, with hints at the nearest route."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Found", "Route", "RouteTable", "WrongMethod"]


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint: the methods and path pattern it answers.

    ``methods`` is a text of names (``"GET POST"``), ``pattern`` has literal segments, ``{name}`` for
    one raw segment and ``{name*}`` last for the raw rest, slashes included (it may be empty).
    ``name`` is what faults and the journal call it. ``lingers`` marks an endpoint that may wait or
    stream: a request to it always takes the socket.
    """

    methods: str
    pattern: str
    name: str
    endpoint: Callable[[Any], object]
    lingers: bool = False
    segments: tuple[str, ...] = field(init=False)
    tail: str | None = field(init=False)
    allowed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        segments = tuple(self.pattern.strip("/").split("/")) if self.pattern != "/" else ()
        tail = None
        if segments and segments[-1].endswith("*}"):
            tail = segments[-1][1:-2]
            segments = segments[:-1]
        object.__setattr__(self, "segments", segments)
        object.__setattr__(self, "tail", tail)
        object.__setattr__(self, "allowed", frozenset(self.methods.split()))

    def match(self, path: str) -> dict[str, str] | None:
        """The raw parameters when the path fits, else None. A trailing slash is tolerated."""
        count = len(self.segments)
        if self.tail is not None:
            parts = path[1:].split("/", count)
            if len(parts) <= count:
                if len(parts) < count or (count and not parts[-1]):
                    return None
                parts.append("")
            rest = parts.pop()
            params = self._bind(parts)
            if params is not None:
                params[self.tail] = rest
            return params
        parts = path[1:].split("/")
        if len(parts) == count + 1 and not parts[-1]:
            parts.pop()
        if len(parts) != count:
            return None
        return self._bind(parts)

    def _bind(self, parts: list[str]) -> dict[str, str] | None:
        params: dict[str, str] = {}
        for segment, part in zip(self.segments, parts, strict=True):
            if segment[0] == "{":
                if not part:
                    return None
                params[segment[1:-1]] = part
            elif segment != part:
                return None
        return params


@dataclass(frozen=True, slots=True)
class Found:
    """The route of a request and its raw parameters."""

    route: Route
    params: dict[str, str]


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """The path exists, for other methods."""

    allowed: frozenset[str]


class RouteTable:
    """All routes of a service; the first that fits wins, in the order given."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_head: dict[str, list[Route]] = {}
        for route in self.routes:
            head = route.segments[0] if route.segments else ""
            self._by_head.setdefault("*" if head[:1] == "{" or not head else head, []).append(route)

    def find(self, method: str, path: str) -> Found | WrongMethod | None:
        """Where a request goes: a route, the methods that would be right, or nowhere."""
        head = path[1:].partition("/")[0]
        allowed: set[str] = set()
        for key in (head, "*"):
            for route in self._by_head.get(key, ()):
                params = route.match(path)
                if params is not None:
                    if method in route.allowed:
                        return Found(route, params)
                    allowed |= route.allowed
        return WrongMethod(frozenset(allowed)) if allowed else None

    def nearest(self, method: str, path: str) -> str:
        """A hint for reports: the known routes most like the request."""
        shapes = {
            f"{m} {route.pattern}": route for route in self.routes for m in sorted(route.allowed)
        }
        near = difflib.get_close_matches(f"{method} {path}", shapes, n=3, cutoff=0.4)
        return ", ".join(near) if near else ", ".join(list(shapes)[:3])
