"""The key-value service: ``KVServer``, its in-memory engine, REST and the Redis protocol.

The modules and folders, from the parts to the whole::

    errors.py settings.py    error messages; dialects and limits
    algorithms/              glob patterns, regular expressions and quoting, independent of the service
    syntax.py config.py      numbers and other words of commands; the parameters of CONFIG
    table/                   a row per command
    values/                  data structures without commands
    rdb/ search/             dumps and .rdb files; indexes of the vendor's search
    reply.py model.py        replies of commands and their encodings; limits of commands, interfaces
    acl.py                   users and their rules
    command_fields.py        the facts of commands, by which calls are filtered
    scripting/               Lua: scripts and function libraries
    engine/                  KVEngine.reply_to(session, [name, *args]) -> reply; keys, time, pub/sub
    commands/                a module or folder per group; @command binds functions to the table
    real_redis/              a real server as the engine
    interruptions.py         the test's code between two commands of a client
    routes.py sse.py resp/   HTTP, its streams, and the Redis protocol
    touches.py saved.py      what commands read and write; the data as JSON, with dump_files.py
    fake.py                  KVServer
    report/                  the parts of reports and console

A command is a function that takes the session and the arguments after the command name
(docs/contributing/recipes.md lists what else a new command needs)::

    @command("ZSCORE")
    def zscore(session: Session, args: Args) -> Reply:
        \"\"\"Return the score of a member.\"\"\"
        scores = get_or_empty(session, args[0], SortedSet).scores
        return printable_score(session, scores.get(args[1]))

Arity, permissions and the expiry of keys are handled before the call. A function checks syntax
first, then types, and writes last; it raises ``CommandError(errors.X)``. It reads with
``session.db.get``, ``string`` and ``lookup``, and writes as ``engine/keyspace.py`` describes. The time
is ``session.now_ms``, random numbers come from ``session.engine.random``, parameters from
``session.engine.config``. A command that blocks returns ``Blocked`` if ``session.may_block``.
"""
