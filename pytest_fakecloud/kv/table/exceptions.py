"""Facts about single commands that no column of ``commands.txt`` can say. Most have none of them."""

from __future__ import annotations

ARITIES = {"COMMAND": -1, "PSYNC": -3, "QUIT": -1}
"""The arities of commands that accept other numbers of words than their synopsis shows."""

PROTECTIONS = {
    "DEBUG": "enable-debug-command",
    **dict.fromkeys(("MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD"), "enable-module-command"),
}
"""The commands that a parameter has to allow, with the parameter."""

AVAILABLE_OVER_REST = frozenset({"CLIENT SETINFO", "ECHO", "PING", "WAIT", "WAITAOF"})
"""Commands that are available over REST, although they block or others of their group are not."""
UNAVAILABLE_OVER_REST = frozenset({
    "DISCARD", "MONITOR", "PSUBSCRIBE", "PUNSUBSCRIBE", "SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE",
    "SUNSUBSCRIBE", "UNSUBSCRIBE", "UNWATCH", "WATCH",
})  # fmt: skip
"""Commands that are not, although they do not block and others of their group are available."""

OTHER_TTLS = frozenset({"COPY", "MOVE", "RENAME", "RENAMENX", "RESTORE", "RESTORE-ASKING"})
"""Commands that set a TTL that is no argument, e.g. that of another key. Tests ask for a new one."""

READ_OTHERS = frozenset({"ARSEEK", "GEORADIUSBYMEMBER_RO", "ZRANK", "ZREVRANK"})
"""Commands with fields, members or indexes as arguments that access others. Tests ask for a new one."""

DELETES_RANGES = frozenset({"ARDELRANGE"})
"""Commands that overwrite indexes between their arguments. Explorations do not compare these."""
