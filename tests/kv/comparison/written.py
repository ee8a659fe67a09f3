"""The hand-written command lines: every scenario the command tests play."""

from __future__ import annotations

import importlib
import pkgutil
import shlex
from collections.abc import Iterator

from tests.kv import scenarios


def hand_written() -> Iterator[tuple[str, list[list[bytes]]]]:
    """The lines of each scenario under the name of its group."""
    for module in pkgutil.iter_modules(scenarios.__path__):
        found = importlib.import_module(f"{scenarios.__name__}.{module.name}")
        for scenario in found.SCENARIOS.values():
            yield module.name, [[word.encode() for word in shlex.split(line)] for line, _ in scenario]
