"""The command table: its file, and the commands whose rows no real server confirms."""

from pathlib import Path

from pytest_fakecloud.kv.table import registry
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import MODULES

TABLE_FILE = Path(registry.__file__).with_name("commands.txt")
"""The file with the rows of the commands."""
WITHOUT_SERVER = frozenset(
    name
    for name, spec in COMMANDS.items()
    if spec.only_in in ("vendor", "redis") or spec.group in MODULES.values()
)
"""The commands that neither Redis 7.0 nor Valkey 9.1 has, which tests can start."""
WITHOUT_DATA = frozenset({"scripting", "transactions", "pubsub", "connection", "server", "cluster"})
"""The groups of commands that access no values of keys, or only run other commands. All other commands
have lines on filled keys and, if a real server has them, templates of random lines.
"""
