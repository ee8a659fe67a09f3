"""Commands that no real server reports, and error texts that the service must produce.

The commands are a second source that checks `kv/table/rows.py`: copy them from the vendor's
documentation, not from there. `test_self_description.py` compares the other commands with real
servers. A command is ``(name, arity, option words, "r", "w" or "")``; an arity of None means that
the row only adds words. The error texts were observed on Redis 7.0.15 and Valkey 9.1; ``<x>``
matches anything.
"""

from __future__ import annotations

# fmt: off
COMMANDS: dict[str, list[tuple[str, int | None, str, str]]] = {
    "json": [
        ("JSON.SET", -4, "NX XX", ""), ("JSON.GET", -2, "INDENT NEWLINE SPACE", ""),
        ("JSON.MGET", -3, "", ""), ("JSON.MSET", -4, "", ""), ("JSON.MERGE", 4, "", ""),
        ("JSON.DEL", -2, "", ""), ("JSON.FORGET", -2, "", ""), ("JSON.TYPE", -2, "", ""),
        ("JSON.NUMINCRBY", 4, "", ""), ("JSON.NUMMULTBY", 4, "", ""), ("JSON.STRLEN", -2, "", ""),
        ("JSON.ARRAPPEND", -4, "", ""), ("JSON.ARRINDEX", -4, "", ""),
        ("JSON.ARRINSERT", -5, "", ""), ("JSON.ARRLEN", -2, "", ""), ("JSON.ARRPOP", -2, "", ""),
        ("JSON.ARRTRIM", 5, "", ""), ("JSON.OBJKEYS", -2, "", ""), ("JSON.OBJLEN", -2, "", ""),
        ("JSON.TOGGLE", 3, "", ""), ("JSON.CLEAR", -2, "", ""), ("JSON.RESP", -2, "", ""),
        ("JSON.STRAPPEND", -3, "", ""), ("JSON.DEBUG MEMORY", None, "", ""),
        ("JSON.DEBUG HELP", None, "", ""),
    ],
    "search": [
        ("SEARCH.AGGREGATE", 4, "", "r"),
        ("SEARCH.ALIASADD", 3, "", "w"),
        ("SEARCH.ALIASDEL", 2, "", "w"),
        ("SEARCH.COUNT", 3, "", "r"),
        ("SEARCH.CREATE", -10,
         "ON JSON HASH STRING PREFIX LANGUAGE SKIPINITIALSCAN EXISTSOK SCHEMA TEXT U64 I64 F64 BOOL "
         "DATE KEYWORD FACET FAST NOSTEM NOTOKENIZE FROM", "w"),
        ("SEARCH.DESCRIBE", 2, "", "r"),
        ("SEARCH.DROP", 2, "", "w"),
        ("SEARCH.LISTALIASES", 1, "", "r"),
        ("SEARCH.LISTINDEXES", -1, "MATCH LIMIT OFFSET", "r"),
        ("SEARCH.QUERY", -3,
         "LIMIT OFFSET ORDERBY ASC DESC SELECT NOCONTENT HIGHLIGHT FIELDS TAGS SCOREFUNC FIELDVALUE "
         "MODIFIER FACTOR MISSING SCOREMODE COMBINEMODE", "r"),
        ("SEARCH.REINDEX", 2, "", "w"),
        ("SEARCH.WAITINDEXING", 2, "", "r"),
    ],
    "vendor or 8.x": [
        ("ACL RESTTOKEN", 4, "", ""),
        ("ACL GENTOKEN", -3, "", ""),
        ("XACKDEL", -6, "KEEPREF DELREF ACKED IDS", ""),
        ("XDELEX", -5, "KEEPREF DELREF ACKED IDS", ""),
        ("XADD", None, "KEEPREF DELREF ACKED", "w"),
        ("XTRIM", None, "KEEPREF DELREF ACKED", "w"),
        ("DELEX", -2, "IFEQ IFNE IFDEQ IFDNE", ""),
        ("DIGEST", 2, "", ""),
        ("SET", None, "IFEQ IFNE IFDEQ IFDNE", "w"),
        ("BITOP", None, "DIFF DIFF1 ANDOR ONE", "w"),
        ("SCAN", None, "WITHTYPE", "r"),
    ],
}  # fmt: skip

ERRORS = [
    "ERR wrong number of arguments for '<x>' command",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR value is not an integer or out of range",
    "ERR syntax error",
    "ERR unknown command '<x>', with args beginning with: '<a>'",
    "ERR unknown subcommand '<x>'. Try <CMD> HELP.",
    "ERR EXEC without MULTI",
    "ERR no such key",
    "ERR value is not a valid float",
    "ERR Function not found",
    "ERR MULTI calls can not be nested",
    "ERR could not decode requested zset member",
    "ERR numkeys should be greater than 0",
    "NOTBUSY No scripts in execution right now.",
    "NOSCRIPT No matching script. Please use EVAL.",
    "ERR Invalid stream ID specified as stream command argument",
    "ERR BITFIELD_RO only supports the GET subcommand",
    "ERR AUTH <password> called without any password configured for the default user. Are you "
    "sure your configuration is correct?",
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    "use the MKSTREAM option to create an empty stream automatically.",
    "ERR DISCARD without MULTI",
    "ERR Library not found",
    "ERR value is out of range, must be positive",
    "NOGROUP No such key '<k>' or consumer group '<g>'",
    "ERR WATCH inside MULTI is not allowed",
    "ERR unsupported unit provided. please use M, KM, FT, MI",
    "ERR unknown subcommand or wrong number of arguments for '<x>'. Try <CMD> HELP.",
    "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    "ERR increment or decrement would overflow",
    "ERR bit offset is not an integer or out of range",
    "WRONGTYPE Key is not a valid HyperLogLog string value.",
    "ERR Number of keys can't be greater than number of args",
    "BUSYKEY Target key name already exists.",
    "ERR DB index is out of range",
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
    "when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    "NOGROUP No such consumer group '<g>' for key name '<x>'",
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but "
    "i64 is.",
    "WRONGTYPE Operation against a key holding the wrong kind of value script: <sha>, on "
    "@user_script:<x>.",
    "ERR index out of range",
    "ERR user_script:1: Script attempted to access nonexistent global variable '<v>' script: "
    "<sha>, on @user_script:<x>.",
    "EXECABORT Transaction discarded because of previous errors.",
    "ERR invalid expire time in 'psetex' command",
    "ERR LIMIT can't be negative",
    "ERR hash value is not an integer",
    "ERR need numeric radius",
    "EXECABORT Transaction discarded because of: wrong number of arguments for '<x>' command",
    "ERR Number of keys can't be negative",
    "ERR value is NaN or Infinity",
    "ERR The ID specified in XSETID is smaller than the target stream top item",
    "ERR Lua redis lib command arguments must be strings or integers script: <sha>, on "
    "@user_script:<x>.",
    "ERR min or max not valid string range item",
    "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<tok>'",
    "ERR min or max is not a float",
    "ERR syntax error, LIMIT cannot be used without the special ~ option",
    "ERR Invalid number of arguments specified for command",
    "ERR increment would produce NaN or Infinity",
    "ERR Client names cannot contain spaces, newlines or special characters.",
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
    "ERR Missing library metadata",
    "ERR The ID specified in XADD must be greater than 0-0",
    "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
    "ERR Error compiling script (new function): user_script:1: '=' expected near '<tok>'",
    "ERR User '<u>' not found",
    "ERR The 'default' user cannot be removed",
    "ERR If you want both the length and indexes, please just use IDX.",
    "ERR COUNT can't be negative",
    "ERR at least 1 input key is needed for '<x>' command",
    "NOGROUP No such key '<k>' or consumer group '<g>' in XREADGROUP with GROUP option",
    "ERR Invalid command specified",
    "ERR One or more scores can't be converted into double",
    "ERR Unknown Redis command called from script script: <sha>, on @user_script:<x>.",
    "ERR MAXLEN can't be negative",
    "ERR No functions registered",
    "ERR BITOP NOT must be called with a single source key.",
    "ERR Unexpected engine in script shebang: <x>",
    "ERR source and destination objects are the same",
    "ERR Library name was not given",
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least "
    "one character long",
    "ERR Unrecognized XCLAIM option '<x>'",
    "ERR The specified keys must contain string values",
    "ERR bit is not an integer or out of range",
    "BUSYGROUP Consumer Group name already exists",
    "ERR Unknown category '<x>'",
    "ERR Engine '<x>' not found",
    "ERR Wrong number of args calling Redis command from script script: <sha>, on "
    "@user_script:<x>.",
    "ERR need numeric width",
    "ERR value for ENTRIESREAD must be positive or -1",
    "ERR This Redis command is not allowed from script script: <sha>, on @user_script:<x>.",
    "ERR weight value is not a float",
    "ERR Syntax error in HELLO option '<x>'",
    "ERR DUMP payload version or checksum are wrong",
    "MY err",
    "My Err script: <sha>, on @user_script:<x>.",
    "ERR Write commands are not allowed from read-only scripts. script: <sha>, on "
    "@user_script:<x>.",
    "ERR invalid cursor",
    "ERR plain",
    "ERR Unknown argument <x>",
    "ERR user_script:1: Attempt to modify a readonly table script: <sha>, on @user_script:<x>.",
    "ERR RESP version must be 2 or 3. script: <sha>, on @user_script:<x>.",
    "ERR count should be greater than 0",
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use "
    "negative to start from the end of the list",
    "ERR GT, LT, and/or NX options at the same time are not compatible",
    "ERR Error in ACL SETUSER modifier '<x>': The password you are trying to remove from the "
    "user does not exist",
    "ERR library name argument was not given",
    "ERR custom",
    "ERR invalid expire time in 'set' command",
    "ERR need numeric height",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "ERR Please specify at least one argument for this redis lib call script: <sha>, on "
    "@user_script:<x>.",
    "ERR Command '<x>' not found",
    "ERR Error in ACL SETUSER modifier '<x>': Unknown command or category name in ACL",
    "ERR user_script:1: Expected value but found invalid token at character 1 script: <sha>, on "
    "@user_script:<x>.",
    "ERR hash value is not a float",
    "ERR invalid second DB index",
    "ERR Unsupported option <x>",
    "ERR Error in ACL SETUSER modifier '<x>': The password hash must be exactly 64 characters "
    "and contain only lowercase hexadecimal characters",
    "ERR COUNT must be > 0",
    "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
    "ERR user_script:1: boom script: <sha>, on @user_script:<x>.",
    "ERR invalid expire time in 'getex' command",
    "ERR The entries_added specified in XSETID is smaller than the target stream length",
    "ERR value is not an integer or out of range script: <sha>, on @user_script:<x>.",
    "ERR Error in ACL SETUSER modifier '<x>': Adding a pattern after the * pattern (or the "
    "'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an "
    "empty list of patterns",
    "ERR Error in ACL SETUSER modifier '<x>': Syntax error",
    "ERR Can not execute a script with write flag using *_ro command.",
    "ERR NX and XX, GT or LT options at the same time are not compatible",
    "ERR Invalid min-idle-time argument for XAUTOCLAIM",
    "ERR invalid first DB index",
    "ERR user_script:1: attempt to index local 'r' (a number value) script: <sha>, on "
    "@user_script:<x>.",
    "ERR Unknown option given: <x>",
    "ERR Lua redis lib command arguments must be strings or integers",
    "ERR Invalid OVERFLOW type specified",
    "ERR value is out of range",
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    "ERR invalid expire time in 'expire' command",
    "ERR Invalid RETRYCOUNT option argument for XCLAIM",
    "ERR count should be greater than or equal to -1",
    "ERR Usernames can't contain spaces or null characters",
    "ERR user_script:1: bad argument #1 to 'decode' (string expected, got nil) script: <sha>, on "
    "@user_script:<x>.",
    "WRONGTYPE Operation against a key holding the wrong kind of value script: <x>, on "
    "@user_function:<x>.",
    "ERR Library '<x>' already exists",
    "ERR Write commands are not allowed from read-only scripts.",
    "ERR user_script:1: Expected value but found T_END at character 1 script: <sha>, on "
    "@user_script:<x>.",
]
# fmt: on
