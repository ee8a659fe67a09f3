"""Implementations of the commands, in one module or folder per command group.

A group is imported when one of its commands first runs, because importing all groups would add 10
ms to the first fake of a test run.
"""

from __future__ import annotations

import importlib

from ..table.registry import CommandSpec, importers

_NAMES = {"cluster": "server", "connection": "server", "generic": "keys"}
"""Maps each command group to its module or folder, if the names differ."""
_ELSEWHERE = {"MIGRATE": "server", "RESTORE-ASKING": "keys"}
"""The module or folder of each command that is not defined in the one of its group."""
_FOLDERS = {"server": "acl client info introspection server", "stream": "entries groups"}
"""Maps each folder to its modules that contain commands."""


def _import_group(spec: CommandSpec) -> None:
    group = "server" if spec.name.endswith(" HELP") else spec.group.replace("-", "_")
    name = _ELSEWHERE.get(spec.name) or _NAMES.get(group, group)
    modules = [f"{name}.{module}" for module in _FOLDERS.get(name, "").split()] or [name]
    for module in modules:
        importlib.import_module(f"{__name__}.{module}")


importers.append(_import_group)
