"""The table of supported commands in the documentation, generated from the command table."""

from __future__ import annotations

from collections.abc import Iterator

from .commands.server.help import summary
from .commands.server.process import REASONS
from .engine import engine as _engine  # noqa: F401 - binds every command's function
from .table.documented import DOCUMENTED
from .table.registry import COMMANDS, CommandSpec

_TITLES = {
    "string": "String",
    "bitmap": "Bitmap",
    "hash": "Hash",
    "list": "List",
    "set": "Set",
    "sorted-set": "Sorted set",
    "geo": "Geo",
    "hyperloglog": "HyperLogLog",
    "stream": "Streams",
    "json": "JSON",
    "search": "Search",
    "generic": "Generic",
    "scripting": "Scripting",
    "transactions": "Transactions",
    "pubsub": "Pub/Sub",
    "connection": "Connection",
    "server": "Server",
    "cluster": "Cluster",
}

_HEAD = """\
# Commands of the key-value service

This file is generated from the table the service itself runs on:
`python -m docs.generate`.

*REST* says whether the command is available there: **yes**, **no** (it belongs to a connection, or
it waits; use the database port), or **refused** (it acts on a server's process, which a fake does
not have; the answer is a real server's refusal, and nothing changes). A transaction lasts no longer
than its request: MULTI alone is OK and leads to nothing, EXEC alone is an error. *Documented* says
whether the vendor's own documentation names the command; `kv_server(documented_only=True)` refuses
all others. *Since* is the version of the server that first had the command.
"""

_CONDITIONS = dict.fromkeys(("MULTI", "EXEC"), "yes, within one pipeline")


def _available(spec: CommandSpec) -> str:
    if spec.function is None:
        return "missing"
    if not spec.over_rest:
        return "no"
    reason = REASONS.get(spec.name) or REASONS.get(spec.name.split()[0])
    if reason and reason.startswith("accepted"):
        return f"yes, {reason}"
    if reason:
        return f"refused: {reason}"
    return _CONDITIONS.get(spec.name, "yes, without BLOCK" if spec.may_wait else "yes")


def _rows(specs: list[CommandSpec]) -> Iterator[str]:
    for spec in specs:
        words = " ".join(spec.options).replace("|", "\\|")
        documented = "yes" if spec.name in DOCUMENTED else "no"
        yield (
            f"| {spec.name} | {_available(spec)} | {documented} | {spec.arity} | {words} | {spec.since} "
            f"| {summary(spec)} |"
        )


def support_table() -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    for group, title in _TITLES.items():
        specs = [
            spec
            for spec in COMMANDS.values()
            if spec.group == group and not (spec.subcommands and spec.function is None)
        ]
        specs.sort(key=lambda spec: spec.name)
        parts.append(f"\n## {title}\n")
        parts.append("| Command | REST | Documented | Arity | Words | Since | What it does |")
        parts.append("|---|---|---|---|---|---|---|")
        parts += _rows(specs)
    return "\n".join(parts) + "\n"
