"""The ``$facet`` aggregation: counts of the paths below a path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....core.budget import spend
from ..index import SearchIndex
from .grouping import STEPS_PER_BUCKET, Compute, Groups, Order, parse_order
from .request import Aggregation, Arguments, DocumentNumbers, column_of


def facet(index: SearchIndex, args: Arguments, subs: Sequence[Aggregation]) -> Compute:
    _, column = column_of(index, args, ("FACET",))
    top = args.take(
        "path", "a path such as '/a'", lambda v: isinstance(v, str) and v[:1] == "/", "/"
    )
    top = top.rstrip("/") or "/"
    deepest = args.take_count("depth", 1, 1)
    size = args.take_count("size", 10, 1)
    least = args.take_count("minDocCount", 1)
    order = parse_order(args, lambda key: key in ("count", "path")) or Order(
        "count", ascending=False
    )

    def compute(numbers: DocumentNumbers) -> list[Any]:
        groups: Groups = {}
        spend(STEPS_PER_BUCKET * len(numbers))
        for at in numbers:
            for path in _paths_below(column.get(at, ()), top, deepest):
                groups.setdefault(path, []).append(at)
        children: dict[str, list[str]] = {}
        for path, having in groups.items():
            if len(having) >= least:
                children.setdefault(path.rpartition("/")[0] or "/", []).append(path)
        for paths in children.values():
            paths.sort(reverse=order == Order("path", ascending=False))
            if order.key == "count":
                paths.sort(key=lambda path: len(groups[path]), reverse=not order.ascending)
        return [b"path", top.encode(), *_facet_children(top, groups, children, size, is_top=True)]

    return compute


def _paths_below(paths: Iterable[str], top: str, deepest: int) -> set[str]:
    """Return the paths at most ``deepest`` levels below ``top``, including intermediate paths."""
    start = [] if top == "/" else top.split("/")[1:]
    found = set()
    for path in paths:
        steps = path.split("/")[1:]
        if steps[: len(start)] == start:
            for length in range(len(start) + 1, min(len(steps), len(start) + deepest) + 1):
                found.add("/" + "/".join(steps[:length]))
    found.discard("/")
    return found


def _facet_children(
    path: str, groups: Groups, children: dict[str, list[str]], size: int, is_top: bool = False
) -> list[Any]:
    paths = children.get(path, [])
    parts: list[Any] = [b"sumOtherDocCount", sum(len(groups[one]) for one in paths[size:])]
    if paths or is_top:
        nodes = [
            [
                *(b"path", one.encode(), b"docCount", len(groups[one])),
                *_facet_children(one, groups, children, size),
            ]
            for one in paths[:size]
        ]
        parts += [b"children", nodes]
    return parts
