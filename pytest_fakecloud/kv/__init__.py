"""The key-value service: an engine that speaks in commands, REST and RESP over it, and a handle.

From the ground up::

    errors.py reply.py       every error text; what commands return, as JSON and RESP
    settings.py model.py     dialects and limits; who runs commands
    algorithms/              globs, hashes, ranks: nothing of ours
    table/                   what is declared: one row per command, CONFIG's parameters, syntax
    values/                  data structures without commands
    acl/                     users, their rules, and what was refused
    scripting/               Lua: scripts and function libraries
    engine/                  Engine.execute(session, [name, *args]) -> reply; keys, time, pub/sub
    commands/                one module per group, bound to the table by @command
    redis/                   a real server as the engine
    rest/ resp/              HTTP, and the native protocol
    handle.py                KVServer, with races.py and python_values.py

How to add a command:

1. Its row in ``table/rows.py`` (name, arity, group, since, flags, key specs, option words).
2. A function in ``commands/<group>``::

       @command("ZCARD")
       def zcard(session: Session, args: Args) -> Reply:
           \"\"\"The number of members of a sorted set.\"\"\"
           members = session.db.get(args[0], SortedSet)
           return 0 if members is None else len(members)

   ``args`` has the arguments only: arity, permission and key expiry are dealt with before. Check
   syntax before types, types before writing; raise ``CommandError(errors.X)``. Read with
   ``session.db.get / string / lookup``, write with ``set`` and ``get_or_create``, then
   ``touch(key)`` and ``remove_if_empty(key)`` after changes in place; both tell the keyspace event
   of the command's name, unless told another (see ``engine/notifications.py``). Time is
   ``session.now_ms``, randomness ``session.engine.random``, parameters ``session.engine.config``.
   The docstring's first sentence is the summary in COMMAND DOCS and in the support table. A command
   that blocks returns ``Blocked`` when ``session.may_block``.
3. Its error texts in ``errors.py``.
4. Cases in ``tests/kv/commands/<group>`` through the ``run`` fixture, which records what was
   exercised: every option word and error text must be.
5. ``python -m docs.generate`` writes the support table anew.
"""

# Whoever has an engine has its commands: the engine knows the table, and this binds them to it.
from . import commands

__all__ = ["commands"]
