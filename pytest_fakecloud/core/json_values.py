"""Values of JSON in a form that is equal for equal values, and the parts of a value."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress

_TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")


def decoded_value(value: object) -> object:
    """Return the value of a string with JSON, also as Vitest and Jest print it; another value itself."""
    for text in (value, _TRAILING_COMMA.sub("", value)) if isinstance(value, str) else ():
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return value


def parts_of(value: object) -> Iterator[object]:
    """Yield the items of a list, or the values of an object of JSON."""
    parts = list(value.values()) if isinstance(value, dict) else value
    yield from map(decoded_value, parts) if isinstance(parts, list) else ()


def nodes_in(values: Iterable[object]) -> set[Hashable]:
    """Return values, and all values inside them, as `node_of()` returns them."""
    nodes: list[Hashable] = []
    with suppress(RecursionError):
        for value in values:
            _add_nodes(value, nodes)
    return set(nodes)


def node_of(value: object) -> Hashable:
    """Return a value in a form that is equal for equal values, a number and its digits among them."""
    return _add_nodes(value, [])


def _add_nodes(value: object, nodes: list[Hashable]) -> Hashable:
    """Return the form of a value, and add it and those of all values inside it to ``nodes``."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    node: Hashable
    if isinstance(value, dict):
        node = (dict, *sorted((str(name), _add_nodes(item, nodes)) for name, item in value.items()))
    elif isinstance(value, list | tuple):
        node = (list, *(_add_nodes(item, nodes) for item in value))
    elif isinstance(value, bool):
        node = (bool, value)
    else:
        node = value if isinstance(value, int | float | None) else str(value)
    nodes.append(node)
    return node
