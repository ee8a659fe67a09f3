"""The page *Commands of the key-value service*, generated from the command table."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_fakecloud.kv.commands.server.introspection import summary
from pytest_fakecloud.kv.engine import engine as _engine  # noqa: F401 - binds every command's function
from pytest_fakecloud.kv.table.registry import COMMANDS, CommandSpec

_TITLES = {
    "string": "String", "bitmap": "Bitmap", "hash": "Hash", "list": "List", "set": "Set",
    "sorted-set": "Sorted set", "geo": "Geo", "hyperloglog": "HyperLogLog", "stream": "Streams",
    "array": "Array", "json": "JSON", "search": "Search", "vector": "Vector",
    "vector-set": "Vector sets", "generic": "Generic",
    "scripting": "Scripting", "transactions": "Transactions", "pubsub": "Pub/Sub",
    "connection": "Connection", "server": "Server", "cluster": "Cluster",
}  # fmt: skip

_HEAD = """\
# Commands of the key-value service

This page is generated from the service's command table: `python -m docs.generate`.

*REST* says whether a command is available over REST: **yes**, **no** (the command belongs to a
connection or blocks; use the database port), or **rejected** (the command acts on a server's
process, which a fake does not have; it returns the error of a real server and changes nothing). A
transaction ends with its request: MULTI alone returns OK and has no effect, and EXEC alone is an
error. *Documented* says whether the vendor's documentation lists the command;
`kv_server(documented_only=True)` rejects all others. *Since* is the server version that introduced
the command.
"""

_ONLY_REDIS = 'the vendor never reports a running script; `kv_server(dialect="redis")` does'
REASONS = {
    name: reason
    for reason, *names in (
        ("there is no process to stop", "SHUTDOWN"),
        ("there is no replication; NO ONE is accepted", "REPLICAOF", "SLAVEOF"),
        ("there are no replicas", "FAILOVER"),
        ("there is no replication", "SYNC", "PSYNC"),
        ("accepted without effect: there is no replication", "REPLCONF"),
        ("modules are native code", "MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD"),
        ("`kv_server(debug_command=True)` allows it", "DEBUG"),
        ("no connection is opened to other servers", "MIGRATE"),
        ("accepted without effect: there is no file to write", "SAVE", "BGSAVE", "BGREWRITEAOF"),
        ("accepted without effect: every change of a user is persisted", "ACL LOAD", "ACL SAVE"),
        ("there is no configuration file", "CONFIG REWRITE"),
        ("there is no import mode; OFF is accepted", "CLIENT IMPORT-SOURCE"),
        (_ONLY_REDIS, "SCRIPT KILL", "FUNCTION KILL"),
        ("the nodes are fixed", "CLUSTER FORGET", "CLUSTER REPLICATE", "CLUSTER RESET"),
    )
    for name in names
}
"""Reasons why commands have no effect."""

_CONDITIONS = dict.fromkeys(("MULTI", "EXEC"), "yes, within one pipeline")


def _available(spec: CommandSpec) -> str:
    if spec.function is None:
        return "missing"
    if not spec.rest:
        return "no"
    if spec.only_in == "stock":
        return 'no: only `kv_server(dialect="redis", version=…)` has it'
    reason = REASONS.get(spec.name) or REASONS.get(spec.name.split()[0])
    if reason and reason.startswith("accepted"):
        return f"yes, {reason}"
    if reason:
        return f"rejected: {reason}"
    return _CONDITIONS.get(spec.name, "yes, without BLOCK" if spec.may_wait else "yes")


def _rows(specs: list[CommandSpec]) -> Iterator[str]:
    for spec in specs:
        words = " ".join(spec.options).replace("|", "\\|")
        documented = "yes" if spec.documented else "no"
        yield (
            f"| {spec.name} | {_available(spec)} | {documented} | {spec.arity} | {words} | {spec.since} "
            f"| {summary(spec)} |"
        )


def page() -> str:
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
