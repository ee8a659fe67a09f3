"""Implementations of the commands, in one module or folder per command group.

A group is imported when one of its commands first runs, because importing all groups would add 10
ms to the first fake of a test run.
"""

from __future__ import annotations

import importlib

from ..table.registry import CommandSpec, import_with

_ROOMS = {
    "cluster": "server",
    "connection": "server",
    "generic": "keys",
    "sorted-set": "sorted_set",
}
"""Maps each command group to its module, if the names differ."""
_ELSEWHERE = {
    "BITFIELD": "bitfield",
    "BITFIELD_RO": "bitfield",
    "MIGRATE": "server",
    "RESTORE-ASKING": "keys",
}
"""Maps each command that is not in the module of its group to its module."""


def _import_group(spec: CommandSpec) -> None:
    if spec.name.endswith(" HELP"):
        room = "server"
    else:
        room = _ELSEWHERE.get(spec.name) or _ROOMS.get(spec.group, spec.group)
    importlib.import_module(f"{__name__}.{room}")


import_with(_import_group)
