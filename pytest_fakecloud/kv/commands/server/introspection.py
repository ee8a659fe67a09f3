"""COMMAND, which returns the command table in the formats of Redis, and HELP of all containers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from ....core.assets import asset
from ... import errors
from ...algorithms.glob import matcher
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import Map, Reply, SetReply, Status
from ...table.arguments import ARGUMENTS
from ...table.keys import KeySpec
from ...table.registry import COMMANDS, Args, CommandSpec, command, variant
from ...table.synopsis import Argument
from ...table.versions import BUILT_IN_MODULE, MODULES

# -- tips, notes and deprecations ------------------------------------------------------------------

# From the output of Redis 7.0 (``COMMAND INFO`` and ``COMMAND DOCS``).

# The tips, a colon, and the commands that have them. Tips help a proxy or a cluster client decide to
# which nodes it sends a command, and how it combines the replies.
_TIPS = """
nondeterministic_output: CLIENT|INFO CLIENT|LIST CLUSTER|BUMPEPOCH CLUSTER|COUNT-FAILURE-REPORTS
  CLUSTER|GETKEYSINSLOT CLUSTER|INFO CLUSTER|LINKS CLUSTER|NODES CLUSTER|REPLICAS CLUSTER|SHARDS
  CLUSTER|SLAVES CLUSTER|SLOTS DUMP HRANDFIELD HSCAN LASTSAVE MIGRATE
  OBJECT|ENCODING OBJECT|FREQ OBJECT|IDLETIME OBJECT|REFCOUNT PTTL SPOP SRANDMEMBER SSCAN TIME TTL
  XADD XAUTOCLAIM XCLAIM XINFO|CONSUMERS XPENDING XTRIM ZRANDMEMBER ZSCAN
request_policy:all_nodes nondeterministic_output: SLOWLOG|GET
request_policy:all_nodes response_policy:agg_sum nondeterministic_output: SLOWLOG|LEN
nondeterministic_output request_policy:all_nodes response_policy:special: LATENCY|DOCTOR
  LATENCY|GRAPH LATENCY|HISTOGRAM LATENCY|HISTORY LATENCY|LATEST
request_policy:all_shards nondeterministic_output: RANDOMKEY
nondeterministic_output request_policy:all_shards response_policy:special: FUNCTION|STATS INFO
  MEMORY|DOCTOR MEMORY|MALLOC-STATS MEMORY|STATS
nondeterministic_output request_policy:special: SCAN
nondeterministic_output_order: COMMAND COMMAND|DOCS COMMAND|INFO COMMAND|LIST FUNCTION|LIST HGETALL
  HKEYS HVALS MODULE|LIST SDIFF SINTER SMEMBERS SUNION
request_policy:all_shards nondeterministic_output_order: KEYS
request_policy:all_nodes response_policy:all_succeeded: CLIENT|SETINFO CONFIG|SET LATENCY|RESET
  SCRIPT|FLUSH SCRIPT|LOAD SLOWLOG|RESET
request_policy:all_shards response_policy:agg_logical_and: SCRIPT|EXISTS
request_policy:all_shards response_policy:agg_min: WAIT WAITAOF
request_policy:all_shards response_policy:agg_sum: DBSIZE
request_policy:all_shards response_policy:all_succeeded: FLUSHALL FLUSHDB FUNCTION|DELETE
  FUNCTION|FLUSH FUNCTION|LOAD FUNCTION|RESTORE MEMORY|PURGE PING
request_policy:all_shards response_policy:one_succeeded: FUNCTION|KILL SCRIPT|KILL
request_policy:multi_shard: MGET
request_policy:multi_shard response_policy:agg_min: MSETNX
request_policy:multi_shard response_policy:agg_sum: DEL EXISTS TOUCH UNLINK
request_policy:multi_shard response_policy:all_succeeded: MSET MSETEX
"""
# The commands, the index of the key spec, and the note on it.
_NOTES = """
BITFIELD 0 This command allows both access and modification of the key
EVAL FCALL 0 We cannot tell how the keys will be used so we assume the worst, RW and UPDATE
EVAL_RO FCALL_RO 0 We cannot tell how the keys will be used so we assume the worst, RO and ACCESS
GETEX 0 RW and UPDATE because it changes the TTL
PFCOUNT 0 RW because it may change the internal representation of the key, and propagate to replicas
SET 0 RW and ACCESS due to the optional `GET` argument
SORT SORT_RO 1 For the optional BY/GET keyword. It is marked 'unknown' because the key names derive
  from the content of the key we sort
SORT 2 For the optional STORE keyword. It is marked 'unknown' because the keyword can appear
  anywhere in the argument array
XADD 0 UPDATE instead of INSERT because of the optional trimming feature
"""
# The command, the version that deprecated it, and the replacement.
_DEPRECATED = """
BRPOPLPUSH 6.2.0 `BLMOVE` with the `RIGHT` and `LEFT` arguments
CLUSTER|SLAVES 5.0.0 `CLUSTER REPLICAS`
CLUSTER|SLOTS 7.0.0 `CLUSTER SHARDS`
GEORADIUS 6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument
GEORADIUSBYMEMBER 6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER`
  arguments
GEORADIUSBYMEMBER_RO 6.2.0 `GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments
GEORADIUS_RO 6.2.0 `GEOSEARCH` with the `BYRADIUS` argument
GETSET 6.2.0 `SET` with the `!GET` argument
HMSET 4.0.0 `HSET` with multiple field-value pairs
RPOPLPUSH 6.2.0 `LMOVE` with the `RIGHT` and `LEFT` arguments
SLAVEOF 5.0.0 `REPLICAOF`
SUBSTR 2.0.0 `GETRANGE`
ZRANGEBYLEX 6.2.0 `ZRANGE` with the `BYLEX` argument
ZRANGEBYSCORE 6.2.0 `ZRANGE` with the `BYSCORE` argument
ZREVRANGE 6.2.0 `ZRANGE` with the `REV` argument
ZREVRANGEBYLEX 6.2.0 `ZRANGE` with the `REV` and `BYLEX` arguments
ZREVRANGEBYSCORE 6.2.0 `ZRANGE` with the `REV` and `BYSCORE` arguments
"""


def _lines(text: str) -> list[str]:
    """Split a text into lines, joining indented lines with the ones before them."""
    return text.strip().replace("\n  ", " ").split("\n")


TIPS = {
    name.replace("|", " "): tuple(tips.encode().split())
    for tips, _, names in (line.partition(": ") for line in _lines(_TIPS))
    for name in names.split()
}
"""The tips of commands and subcommands, by name."""

NOTES = {
    (name, int(index)): note.encode()
    for names, index, note in (re.split(r" (\d) ", line, maxsplit=1) for line in _lines(_NOTES))
    for name in names.split()
}
"""Notes on the keys of commands, by command name and by the index of the key spec."""

DEPRECATED: dict[str, tuple[bytes, bytes]] = {
    name.replace("|", " "): (version.encode(), replacement.encode())
    for name, version, replacement in (line.split(" ", 2) for line in _lines(_DEPRECATED))
}
"""Maps each deprecated command to the version that deprecated it and to its replacement."""

INTERNAL = frozenset({"DEBUG", "PFDEBUG", "PFSELFTEST", "REPLCONF", "RESTORE-ASKING"})
"""Commands that are not meant for users."""


# -- COMMAND -------------------------------------------------------------------------------------


def _top_level_specs(session: Session) -> list[CommandSpec]:
    return [spec for spec in session.engine.table.commands.values() if " " not in spec.name]


def _find_spec(session: Session, name: bytes) -> CommandSpec | None:
    wanted = name.decode("utf-8", "replace").upper().replace("|", " ")
    return session.engine.table.commands.get(wanted)


def _words_reply(words: Iterable[str]) -> SetReply:
    return SetReply([Status(word.encode()) for word in words])


def _key_spec_reply(spec: KeySpec, note: bytes | None) -> Reply:
    flags = _words_reply(spec.flags)
    notes = [] if note is None else [b"notes", note]
    if spec.unknown:
        unknown = Map([b"type", b"unknown", b"spec", Map()])
        return Map([*notes, b"flags", flags, b"begin_search", unknown, b"find_keys", unknown])
    if spec.keyword is None:
        begin = Map([b"type", b"index", b"spec", Map([b"index", spec.first])])
    else:
        keyword = Map([b"keyword", spec.keyword, b"startfrom", spec.first])
        begin = Map([b"type", b"keyword", b"spec", keyword])
    if spec.numkeys:
        count = Map([b"keynumidx", 0, b"firstkey", 1, b"keystep", spec.step])
        find = Map([b"type", b"keynum", b"spec", count])
    else:
        span = Map([b"lastkey", spec.last, b"keystep", spec.step, b"limit", spec.limit])
        find = Map([b"type", b"range", b"spec", span])
    return Map([*notes, b"flags", flags, b"begin_search", begin, b"find_keys", find])


def _legacy_range(spec: CommandSpec) -> list[int]:
    """Return the first key, the last key and the step, for clients that do not read key specs.

    A negative last key is counted from the end of the command line, so it is later than any other.
    """
    plain = [key for key in spec.keys if not key.depends_on_arguments]
    if not plain:
        return [0, 0, 0]
    lasts = [key.first + key.last if key.last >= 0 else key.last for key in plain]
    last = min(lasts) if min(lasts) < 0 else max(lasts)
    return [min(key.first for key in plain), last, plain[0].step]


def _info_reply(spec: CommandSpec) -> list[Reply]:
    movable = any(key.depends_on_arguments for key in spec.keys)
    flags = sorted(spec.flags) + (["movablekeys"] if movable else [])
    return [
        spec.full_name.encode(),
        spec.arity,
        _words_reply(flags),
        *_legacy_range(spec),
        _words_reply(sorted(spec.categories)),
        list(TIPS.get(spec.name, ())),
        [_key_spec_reply(key, NOTES.get((spec.name, at))) for at, key in enumerate(spec.keys)],
        [_info_reply(child) for child in (spec.subcommands or {}).values()],
    ]


@command("COMMAND")
def command_(session: Session, args: Args) -> Reply:
    """Return details of all commands; in the vendor's dialect, an empty list."""
    if session.engine.dialect == "vendor":
        return []
    return [_info_reply(spec) for spec in _top_level_specs(session)]


@command("COMMAND COUNT")
def command_count(session: Session, args: Args) -> Reply:
    """Return the number of commands."""
    return len(_top_level_specs(session))


@command("COMMAND INFO")
def command_info(session: Session, args: Args) -> Reply:
    """Return details of commands; nil for each command that does not exist."""
    specs = [_find_spec(session, name) for name in args] if args else _top_level_specs(session)
    return [None if spec is None else _info_reply(spec) for spec in specs]


def _docs_reply(spec: CommandSpec) -> Map:
    facts = Map([
        b"summary", summary(spec).encode(),
        b"since", spec.since.encode(),
        b"group", spec.group.encode(),
        b"complexity", b"",
        b"history", SetReply(),
    ])  # fmt: skip
    deprecated = DEPRECATED.get(spec.name)
    if deprecated is not None:
        since, replacement = deprecated
        facts += [b"doc_flags", _words_reply(["deprecated"])]
        facts += [b"deprecated_since", since, b"replaced_by", replacement]
    elif spec.name in INTERNAL:
        facts += [b"doc_flags", _words_reply(["syscmd"])]
    if arguments := _argument_replies(spec):
        facts += [b"arguments", arguments]
    children: list[Reply] = []
    for child in (spec.subcommands or {}).values():
        children += [child.full_name.encode(), _docs_reply(child)]
    if children:
        facts += [b"subcommands", Map(children)]
    return facts


def _argument_replies(spec: CommandSpec) -> list[Reply]:
    """Return the arguments of a command. Keys have the index of their key spec."""
    indexes = iter([index for index, key in enumerate(spec.keys) if not key.unknown])
    key_indexes: dict[str, int | None] = {}

    def reply(argument: Argument) -> Map:
        name, kind, facts = argument.name, argument.kind, Map()
        if kind == "string":
            kind = ARGUMENTS[name].type
        if kind == "key":
            word = name.rstrip("12")  # `key1` and `key2` of LCS have one key spec.
            if word not in key_indexes:
                key_indexes[word] = next(indexes, None)
            index = key_indexes[word]
            if index is None:
                kind = "string"
            else:
                facts = Map([b"key_spec_index", index])
        flags = [flag for flag in ("optional", "multiple") if getattr(argument, flag)]
        facts = Map([b"name", name.encode(), b"type", kind.encode(), *facts])
        if argument.token:
            facts += [b"token", argument.token.encode()]
        if flags:
            facts += [b"flags", _words_reply(flags)]
        if argument.inner:
            facts += [b"arguments", [reply(inner) for inner in argument.inner]]
        return facts

    return [reply(argument) for argument in spec.arguments]


@command("COMMAND DOCS")
def command_docs(session: Session, args: Args) -> Reply:
    """Return the documentation of commands: summary, version, group, and arguments.

    Complexity and history are empty, because the table does not contain them (decided here).
    """
    specs = _top_level_specs(session)
    if args:
        specs = [spec for name in args if (spec := _find_spec(session, name)) is not None]
    return Map([item for spec in specs for item in (spec.full_name.encode(), _docs_reply(spec))])


@command("COMMAND LIST")
def command_list(session: Session, args: Args) -> Reply:
    """Return the names of commands, optionally filtered by category, module, or pattern."""
    specs = list(session.engine.table.commands.values())
    if args:
        if len(args) != 3 or args[0].upper() != b"FILTERBY":
            raise CommandError(errors.SYNTAX)
        name = args[2].decode("utf-8", "replace")
        match args[1].upper():
            case b"PATTERN":
                matches = matcher(args[2], nocase=True)
                specs = [spec for spec in specs if matches(spec.full_name.encode())]
            case b"ACLCAT":
                specs = [spec for spec in specs if "@" + name.lower() in spec.categories]
            case b"MODULE":
                groups = {**MODULES, BUILT_IN_MODULE: "vector-set"}
                group = groups[name] if name in session.engine.table.modules else None
                specs = [spec for spec in specs if spec.group == group]
            case _:
                raise CommandError(errors.SYNTAX)
    return [spec.full_name.encode() for spec in specs]


def _keys_of_line(session: Session, args: Args) -> list[tuple[bytes, KeySpec]]:
    """Return each key of a command line with its specification."""
    spec = _spec_of_line(session, args)
    keys = [(args[at], key) for at, key in spec.key_positions(args)]
    if (spec.lacks_keys(args) or not keys) and "no_mandatory_keys" not in spec.flags:
        raise CommandError(errors.GETKEYS_ARGUMENTS)
    return keys


def _spec_of_line(session: Session, args: Args) -> CommandSpec:
    """Return the command or subcommand of a line; raise ``CommandError`` if it cannot have keys."""
    try:
        spec = session.engine.table.resolve(args)
    except CommandError:
        raise CommandError(errors.GETKEYS_UNKNOWN) from None
    if all(key.is_channel for key in spec.keys):
        raise CommandError(errors.NO_KEY_ARGUMENTS)
    if not spec.least <= len(args) <= spec.most:
        raise CommandError(errors.GETKEYS_ARITY)
    return spec


@command("COMMAND GETKEYS")
def command_getkeys(session: Session, args: Args) -> Reply:
    """Return the keys in a command line."""
    return [key for key, _ in _keys_of_line(session, args)]


@command("COMMAND GETKEYSANDFLAGS")
def command_getkeysandflags(session: Session, args: Args) -> Reply:
    """Return the keys in a command line with the flags that say how the command accesses each key."""
    return [[key, _words_reply(spec.flags)] for key, spec in _keys_of_line(session, args)]


# -- HELP ----------------------------------------------------------------------------------------


def summary(spec: CommandSpec) -> str:
    """Return a command's summary, which is the first sentence of its function's docstring."""
    docstring = spec.function.__doc__ if spec.function is not None else None
    paragraph = " ".join((docstring or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


@cache
def _help_texts() -> dict[str, list[str]]:
    """Return the lines of the help texts of Redis 7.0, keyed by the names of the containers."""
    sections = (section.splitlines() for section in asset(__file__, "help.txt").split("== ")[1:])
    return {container: lines for container, *lines in sections}


def show_help(session: Session, args: Args, *, container: str) -> Reply:
    """Return the lines of HELP as in Redis 7.0, and of the vendor's own subcommands."""
    text = _help_texts().get(container, [])
    lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    lines += text
    listed = {line.split()[0] for line in lines}
    if session.engine.dialect == "vendor" or not text:
        for spec in (session.engine.table.commands[container].subcommands or {}).values():
            word = spec.name.split()[1]
            if word not in listed and word != "HELP":
                words = " ".join(f"[{option}]" for option in spec.options)
                lines += [f"{word} {words}".strip(), f"    {summary(spec)}"]
    lines += ["HELP", "    Prints this help."]
    return [Status(line.encode()) for line in lines]


for _name, _spec in COMMANDS.items():
    # CLUSTER HELP is rejected unless the server is a cluster.
    if _name.endswith(" HELP") and _spec.group != "cluster":
        _container = _name.removesuffix(" HELP")
        _summary = f"Return the subcommands of {_container}."
        variant(_name, _summary, container=_container)(show_help)
