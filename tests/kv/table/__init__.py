"""The command table: its file, the commands whose rows no real server confirms, and their functions."""

from pathlib import Path

from pytest_fakecloud.kv import commands
from pytest_fakecloud.kv.table import registry
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import MODULES

TABLE_FILE = Path(registry.__file__).with_name("commands.txt")
"""The file with the rows of the commands."""
WITHOUT_SERVER = frozenset(
    name
    for name, spec in COMMANDS.items()
    if spec.only_in in ("vendor", "redis", "stock") or spec.group in MODULES.values()
)
"""The commands that neither Redis 7.0 nor Valkey 9.1 has, which tests can start."""
FUNCTION_MODULES = {
    name: spec.function.__module__.removeprefix(f"{commands.__name__}.").replace(".", "/")
    for name, spec in COMMANDS.items()
    if spec.function
}
"""The path of the module with each command's function, in ``kv/commands`` and without a suffix."""


def module_of_group(group: str) -> str:
    """Return the path of the module with most of a group's functions."""
    modules = [path for name, path in FUNCTION_MODULES.items() if COMMANDS[name].group == group]
    return max(modules, key=modules.count, default="<new module>")
