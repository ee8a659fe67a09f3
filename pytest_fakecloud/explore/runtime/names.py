"""Replaces functions in the modules in which they have a name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Replacement(NamedTuple):
    """A function, its name, and the function that replaces it."""

    name: str
    original: Callable[..., Any]
    ours: Callable[..., Any]


@contextlib.contextmanager
def replaced(
    replacements: Sequence[Replacement], *, leaves_out: Callable[[str], bool] = lambda name: False
) -> Iterator[None]:
    """Replace functions within the block, also in modules that imported them by name.

    ``leaves_out`` is called with the name of a module and returns whether the module keeps the
    originals. When the block ends, the originals are restored everywhere, also in modules that were
    imported or removed from ``sys.modules`` within the block.
    """
    modules = dict(sys.modules)
    _exchange((module for name, module in modules.items() if not leaves_out(name)), replacements)
    try:
        yield
    finally:
        back = [Replacement(name, ours, original) for name, original, ours in replacements]
        _exchange([*modules.values(), *sys.modules.values()], back)


def _exchange(modules: Iterable[object], replacements: Sequence[Replacement]) -> None:
    for module in modules:
        names = getattr(module, "__dict__", {})
        for name, original, ours in replacements:
            if names.get(name) is original:
                names[name] = ours
