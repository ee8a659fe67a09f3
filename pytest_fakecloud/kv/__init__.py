"""The key-value service: an engine that speaks in commands, REST routes over it, and a handle.

Where things are::

    table.py      one row per command: arity, flags, key positions, options
    registry.py   the table as objects; @command binds functions to rows
    engine.py     Engine.execute(session, [name, *args]) -> reply; transactions, pub/sub, time
    model.py      Session, users, Config, Limits
    keyspace.py   keys, typed access, expiry, watching         scanning.py  stable cursors
    reply.py      what commands return; JSON and RESP          errors.py    every error text
    syntax.py     reading and writing numbers                  glob.py      patterns
    values/       data structures without commands             commands/    one module per group
    capacity.py   limits of the data; quota.py  of requests    pubsub.py    who listens
    notifications.py  events of keys, by class                 config.py    CONFIG's parameters
    routes.py     the REST interface                           handle.py    KVServer
    resp_port.py  the native protocol                          redis_engine.py  real servers

How to add a command:

1. Its row in ``table.py`` (name, arity, group, since, flags, key specs, option words).
2. A function in ``commands/<group>.py``::

       @command("ZCARD")
       def zcard(session: Session, args: Args) -> Reply:
           \"\"\"The number of members of a sorted set.\"\"\"
           members = session.db.get(args[0], SortedSet)
           return 0 if members is None else len(members)

   ``args`` has the arguments only: arity, permission and key expiry are dealt with before. Check
   syntax before types, types before writing; raise ``CommandError(errors.X)``. Read with
   ``session.db.get / string / lookup``, write with ``set`` and ``get_or_create``, then
   ``touch(key)`` and ``remove_if_empty(key)`` after changes in place; both tell the keyspace event
   of the command's name, unless told another (see ``notifications.py``). Time is
   ``session.now_ms``, randomness ``session.engine.random``, settings
   ``session.engine.config``. The docstring's first sentence is
   the summary in COMMAND DOCS and in the support table. A command that blocks returns ``Blocked``
   when ``session.may_block``.
3. Its error texts in ``errors.py``.
4. Cases in ``tests/kv/commands/test_<group>.py`` through the ``run`` fixture, which records what
   was exercised: every option word and error text must be.
5. ``python -m pytest_fakecloud.kv.support`` writes the support table anew.
"""
