"""What runs each command: one module or folder per group, imported when one of its commands first runs.

All of them together would cost the first fake of a run 10 ms.
"""

from __future__ import annotations

import importlib

from ..table.registry import CommandSpec, bind_with

__all__: list[str] = []

_ROOMS = {
    "cluster": "server",
    "connection": "server",
    "generic": "keys",
    "sorted-set": "sorted_set",
}
"""Where the commands of a group are, unless in a place of its name."""
_ELSEWHERE = {"MIGRATE": "server", "RESTORE-ASKING": "keys"}


def _bind(spec: CommandSpec) -> None:
    room = _ELSEWHERE.get(spec.name) or _ROOMS.get(spec.group, spec.group)
    importlib.import_module(f"{__name__}.{room}")


bind_with(_bind)
