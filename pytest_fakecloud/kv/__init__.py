"""The key-value service: an engine that runs commands, REST and the Redis protocol, and ``KVServer``.

Each line uses only those above it::

    errors.py reply.py       every error text; what commands return, and its encodings
    settings.py model.py     dialects and limits; the interface of engines
    algorithms/              globs, hashes, scans: independent of the service
    table/                   declarations: a row per command, CONFIG's parameters, syntax
    values/                  data structures without commands
    acl/                     users, their rules, the log of denied command lines
    scripting/               Lua: scripts and function libraries
    engine/                  Engine.execute(session, [name, *args]) -> reply; keys, time, pub/sub
    commands/                a module or folder per group, bound to the table by @command
    redis/                   a real server as the engine
    rest/ resp/              HTTP, and the Redis protocol
    handle.py                KVServer, with races.py and python_values.py

A command is a function of the session and the arguments after the name (CONTRIBUTING.md lists what
else a new one needs)::

    @command("ZCARD")
    def zcard(session: Session, args: Args) -> Reply:
        \"\"\"Return the number of members of a sorted set.\"\"\"
        members = session.db.get(args[0], SortedSet)
        return 0 if members is None else len(members)

Arity, permission and key expiry are handled before the call. Check syntax before types, and types
before writing; raise ``CommandError(errors.X)``. Read with ``session.db.get / string / lookup``,
write with ``set`` and ``get_or_create``; after a change in place call ``touch(key)`` and
``remove_if_empty(key)``. Both publish the keyspace event of the command's name unless given another
(``engine/notifications.py``). Time is ``session.now_ms``, randomness ``session.engine.random``,
parameters ``session.engine.config``. A command that blocks returns ``Blocked`` when
``session.may_block``.
"""

# Import the command modules with the package, so that their commands are registered in the table.
from . import commands

__all__ = ["commands"]
