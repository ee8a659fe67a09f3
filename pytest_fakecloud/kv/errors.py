"""Error messages of the service, and the exceptions that carry them.

Messages are bytes, because they may quote bytes that a client sent. Unless a source is named, those of
commands that Redis 7.0 or Valkey 9.1 has were observed there.

Errors for a command that the service does not offer, for null arguments and for limits are those that
users of the vendor's service have published. Decided here, because none is published:

- the errors for changing a built-in user, for refused rules of users, for a weak password of ACL
  GENTOKEN, and for arrays and objects as arguments;
- the errors of array, vector and search commands, of MSETEX, SDIFFCARD, SUNIONCARD, XDELEX and XACKDEL,
  except those that the vendor's documentation quotes;
- those of commands and options that Redis has added since 8.0, unless its documentation quotes them;
- that a command without REST, such as CLIENT ID, has the error there of a command that the service
  does not offer.
"""

from __future__ import annotations

import re

from ..core.errors import ServiceError


class CommandError(ServiceError):
    """The error reply of a command; ``text`` starts with an error code such as ``WRONGTYPE``.

    Commands raise it, or put it into a list reply if only one item failed.
    """

    __module__ = "pytest_fakecloud"

    def __init__(self, text: bytes) -> None:
        super().__init__(400, text.decode("utf-8", "replace"))
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandError) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def as_reply(error: CommandError) -> CommandError:
    """Return a caught error as a reply, without the frames in which it arose: one has the reply."""
    error.__traceback__ = error.__context__ = None
    return error


class CountedError(CommandError):
    """An error that the statistics already include: of a command whose script returned the error."""


class Redirection(CommandError):
    """An error of a cluster, instead of which EXEC does not return EXECABORT."""


class RestError(ServiceError):
    """An error of the REST interface, which rejects a whole request or its reply."""

    __module__ = "pytest_fakecloud"


class Template:
    """An error text with placeholders such as ``<name>``. A call passes their values in order.

    Values are bytes that a client sent, strings or numbers. As in Redis, bytes are cut at their
    first NUL if ``c_strings`` is true, and after ``longest`` bytes.
    """

    def __init__(self, text: str, *, c_strings: bool = False, longest: int | None = None) -> None:
        self._text = text
        self._c_strings = c_strings
        self._longest = longest

    def __call__(self, *values: object) -> bytes:
        first, *parts = map(str.encode, re.split(r"<\w+>", self._text))
        filled = zip(map(self._shown, values), parts, strict=True)
        return one_line(first + b"".join([shown + part for shown, part in filled]))

    def _shown(self, value: object) -> bytes:
        if not isinstance(value, bytes):
            text = f"{value:f}" if isinstance(value, float) else str(value)
            return text.encode("utf-8", "surrogateescape")
        return (value.split(b"\0")[0] if self._c_strings else value)[: self._longest]


def one_line(text: bytes) -> bytes:
    """Replace line breaks with spaces, because an error reply must be a single line."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


# Names in capitals are complete messages, and names in lower case are templates. Constants of type
# str are reasons, which a template or `RestError` completes. Templates take names of commands in
# lower case (`xgroup|create`), except `not_available`.

# -- dispatch ------------------------------------------------------------------------------------

SYNTAX = b"ERR syntax error"
OOM = b"OOM command not allowed when used memory > 'maxmemory'."
WRONGTYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
NOT_INTEGER_VENDOR = b"ERR value is not an int or out of range"
"""From the vendor's example of a pipeline."""
NOT_FLOAT = b"ERR value is not a valid float"
OUT_OF_RANGE = b"ERR value is out of range"
OUT_OF_INT_RANGE = b"ERR value is out of range, value must between -2147483648 and 2147483647"
OUT_OF_LONG_RANGE = (
    b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
)
NOT_POSITIVE = b"ERR value is out of range, must be positive"
NOT_0_OR_1 = b"ERR value is out of range, value must between 0 and 1"
NO_SUCH_KEY = b"ERR no such key"
SAME_OBJECT = b"ERR source and destination objects are the same"
INDEX_OUT_OF_RANGE = b"ERR index out of range"
OVERFLOW = b"ERR increment or decrement would overflow"
NAN_OR_INFINITY = b"ERR increment would produce NaN or Infinity"
INCREX_BOUNDS = b"ERR LBOUND must not be greater than UBOUND"
TOO_MANY_MATCHES = b"ERR too many keys to fetch, please use SCAN"
INVALID_CURSOR = b"ERR invalid cursor"
NUMKEYS_NOT_POSITIVE = b"ERR numkeys should be greater than 0"
COUNT_NOT_POSITIVE = b"ERR count should be greater than 0"
LIMIT_NEGATIVE = b"ERR LIMIT can't be negative"
NOAUTH = b"NOAUTH Authentication required."
"""The error that stops work for a client that has disconnected; no client ever receives it."""
NOT_ENOUGH_REPLICAS = b"NOREPLICAS Not enough good replicas to write."

wrong_arity = Template("ERR wrong number of arguments for '<name>' command")
over_budget = Template("ERR the command was stopped: <reason>")
RAN_TOO_LONG = (
    b"ERR the command was not run: its transaction takes more than 2 seconds; request less"
)


def unknown_command(line: list[bytes]) -> bytes:
    """The error for an unknown command; it quotes at most 128 bytes of the arguments."""
    quoted = b""
    for argument in line[1:]:
        if len(quoted) >= 128:
            break
        quoted += b"'" + argument.split(b"\0")[0][: 128 - len(quoted)] + b"' "
    name = line[0].split(b"\0")[0][:128]
    return one_line(b"ERR unknown command '" + name + b"', with args beginning with: " + quoted)


unknown_subcommand = Template(
    "ERR unknown subcommand '<sent>'. Try <container> HELP.", c_strings=True, longest=128
)
bad_subcommand_arguments = Template(
    "ERR unknown subcommand or wrong number of arguments for '<sent>'. Try <container> HELP.",
    c_strings=True,
    longest=128,
)
not_available = Template(
    "ERR Command is not available: '<name>'. See "
    "https://upstash.com/docs/redis/overall/rediscompatibility for details",
    longest=128,
)
no_permission = Template("NOPERM this user has no permissions to run the '<name>' command")
no_permission_vendor = Template(
    "NOPERM this user has no permissions to run the '<name>' command or its subcommand"
)
"""The vendor's text, which older servers have, too."""
invalid_expire = Template("ERR invalid expire time in '<name>' command")

# -- transactions and scripts --------------------------------------------------------------------

EXEC_WITHOUT_MULTI = b"ERR EXEC without MULTI"
DISCARD_WITHOUT_MULTI = b"ERR DISCARD without MULTI"
NESTED_MULTI = b"ERR MULTI calls can not be nested"
WATCH_INSIDE_MULTI = b"ERR WATCH inside MULTI is not allowed"
EXECABORT = b"EXECABORT Transaction discarded because of previous errors."
NOT_IN_TRANSACTION = b"ERR Command not allowed inside a transaction"
REPLY_TOO_DEEP = b"ERR reached lua stack limit"
"""The error in place of the innermost part of a script's reply."""


def exec_aborted_by(cause: bytes) -> bytes:
    """The error of EXEC for a transaction that another error has aborted."""
    return one_line(b"EXECABORT Transaction discarded because of: " + cause.removeprefix(b"ERR "))


# -- strings and bitmaps -------------------------------------------------------------------------

STRING_TOO_LONG = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
DECREMENT_OVERFLOW = b"ERR decrement would overflow"
MSETEX_NUMKEYS = b"ERR invalid numkeys value or out of range"
BAD_DIGEST = b"ERR digest must be exactly 16 hexadecimal characters"  # wording decided here
OFFSET_OUT_OF_RANGE = b"ERR offset is out of range"
LCS_NOT_STRINGS = b"ERR The specified keys must contain string values"
LCS_LEN_AND_IDX = b"ERR If you want both the length and indexes, please just use IDX."
LCS_TOO_LONG = b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
BIT_OFFSET = b"ERR bit offset is not an integer or out of range"
BIT_VALUE = b"ERR bit is not an integer or out of range"
BIT_ARGUMENT = b"ERR The bit argument must be 1 or 0."
BITOP_NOT_ONE_SOURCE = b"ERR BITOP NOT must be called with a single source key."
BITFIELD_TYPE = (
    b"ERR Invalid bitfield type. Use something like i16 u8. "
    b"Note that u64 is not supported but i64 is."
)
BITFIELD_OVERFLOW = b"ERR Invalid OVERFLOW type specified"
BITFIELD_RO_GET_ONLY = b"ERR BITFIELD_RO only supports the GET subcommand"

bitop_needs_two = Template("ERR BITOP <operation> must be called with at least two source keys.")
"""From tests of the vendor's SDK."""

# -- hashes --------------------------------------------------------------------------------------

HASH_NOT_INTEGER = b"ERR hash value is not an integer"
HASH_NOT_FLOAT = b"ERR hash value is not a float"
NUMFIELDS = b"ERR numfields should be greater than 0 and match the provided number of fields"
VALUE_NAN_OR_INFINITY = b"ERR value is NaN or Infinity"

# -- lists ---------------------------------------------------------------------------------------

LPOS_RANK = (
    b"ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
    b"or use negative to start from the end of the list"
)
LPOS_COUNT = b"ERR COUNT can't be negative"
LPOS_MAXLEN = b"ERR MAXLEN can't be negative"
TIMEOUT_NOT_FLOAT = b"ERR timeout is not a float or out of range"
TIMEOUT_NOT_INTEGER = b"ERR timeout is not an integer or out of range"
TIMEOUT_NEGATIVE = b"ERR timeout is negative"
TIMEOUT_OUT_OF_RANGE = b"ERR timeout is out of range"

# -- sets and sorted sets ------------------------------------------------------------------------

TOO_MANY_KEYS = b"ERR Number of keys can't be greater than number of args"
ZADD_XX_AND_NX = b"ERR XX and NX options at the same time are not compatible"
ZADD_GT_LT_NX = b"ERR GT, LT, and/or NX options at the same time are not compatible"
ZADD_INCR_PAIRS = b"ERR INCR option supports a single increment-element pair"
SCORE_NAN = b"ERR resulting score is not a number (NaN)"
SCORE_RANGE = b"ERR min or max is not a float"
LEX_RANGE = b"ERR min or max not valid string range item"
WEIGHT_NOT_FLOAT = b"ERR weight value is not a float"
LIMIT_NEEDS_BY = (
    b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
)
WITHSCORES_WITH_BYLEX = b"ERR syntax error, WITHSCORES not supported in combination with BYLEX"

input_key_needed = Template("ERR at least 1 input key is needed for '<name>' command")

# -- geo -----------------------------------------------------------------------------------------

GEO_RADIUS = b"ERR need numeric radius"
GEO_RADIUS_NEGATIVE = b"ERR radius cannot be negative"
GEO_WIDTH = b"ERR need numeric width"
GEO_HEIGHT = b"ERR need numeric height"
GEO_BOX_NEGATIVE = b"ERR height or width cannot be negative"
GEO_UNIT = b"ERR unsupported unit provided. please use M, KM, FT, MI"
GEO_MEMBER = b"ERR could not decode requested zset member"
GEO_COUNT = b"ERR COUNT must be > 0"
GEO_ANY = b"ERR the ANY argument requires COUNT argument"
GEO_STORE_WITH = (
    b"ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
)
GEOSEARCHSTORE_WITH = (
    b"ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
)

geo_position = Template("ERR invalid longitude,latitude pair <longitude>,<latitude>")
geo_centre = Template("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for <name>")
geo_shape = Template("ERR exactly one of BYRADIUS and BYBOX can be specified for <name>")

# -- HyperLogLog ---------------------------------------------------------------------------------

NOT_HYPERLOGLOG = b"WRONGTYPE Key is not a valid HyperLogLog string value."
CORRUPT_HYPERLOGLOG = b"INVALIDOBJ Corrupted HLL object detected"
PFDEBUG_NO_KEY = b"ERR The specified key does not exist"
PFDEBUG_NOT_SPARSE = b"ERR HLL encoding is not sparse"

pfdebug_unknown = Template("ERR Unknown PFDEBUG subcommand '<sent>'", c_strings=True)

# -- streams -------------------------------------------------------------------------------------

STREAM_ID = b"ERR Invalid stream ID specified as stream command argument"
INTERVAL_START = b"ERR invalid start ID for the interval"
INTERVAL_END = b"ERR invalid end ID for the interval"
XADD_ID_ZERO = b"ERR The ID specified in XADD must be greater than 0-0"
XADD_ID_SMALL = b"ERR The ID specified in XADD is equal or smaller than the target stream top item"
XADD_EXHAUSTED = b"ERR The stream has exhausted the last possible ID, unable to add more items"
TRIM_TWO_STRATEGIES = (
    b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
)
TRIM_MAXLEN_NEGATIVE = b"ERR The MAXLEN argument must be >= 0."
TRIM_LIMIT_NEGATIVE = b"ERR The LIMIT argument must be >= 0."
TRIM_LIMIT_ALONE = b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
XTRIM_NO_STRATEGY = b"ERR syntax error, XTRIM must be called with a trimming strategy"
TRIM_LIMIT_EXACT = b"ERR syntax error, LIMIT cannot be used without the special ~ option"
XREAD_UNBALANCED = (
    b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
)
XREAD_GROUP = b"ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."
XREAD_NOACK = b"ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead."
XREADGROUP_NO_GROUP = b"ERR Missing GROUP option for XREADGROUP"
XREADGROUP_LAST = (
    b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of "
    b"this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID "
    b"would just return an empty result set."
)
XREAD_NEW = (
    b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
    b"<consumer> option."
)
XGROUP_NO_KEY = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    b"use the MKSTREAM option to create an empty stream automatically."
)
XGROUP_ENTRIESREAD = b"ERR value for ENTRIESREAD must be positive or -1"
BUSYGROUP = b"BUSYGROUP Consumer Group name already exists"
XAUTOCLAIM_COUNT = b"ERR COUNT must be > 0"
XSETID_SMALL = b"ERR The ID specified in XSETID is smaller than the target stream top item"
XSETID_ENTRIES_NEGATIVE = b"ERR entries_added must be positive"
XSETID_ENTRIES_SMALL = (
    b"ERR The entries_added specified in XSETID is smaller than the target stream length"
)
XSETID_BELOW_GIVEN = (
    b"ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
)
XSETID_BELOW_DELETED = (
    b"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
)
XDELEX_NUMIDS = b"ERR Number of IDs must be a positive integer"  # wording decided here
XDELEX_IDS = b"ERR The `numids` parameter must match the number of arguments"
"""The wording is decided here."""
IDMP_DURATION = b"ERR invalid duration, it must be between 1 and 86400 seconds"
IDMP_MAXSIZE = b"ERR invalid maxsize, it must be between 1 and 10000"
IDMP_EMPTY = b"ERR the ids of a producer and of its entry must not be empty"
IDMP_NEEDS_NEW_ID = b"ERR IDMP and IDMPAUTO can only be used with the ID *"
IDMP_NO_ENTRY = b"ERR the stream has no entry with this ID"
IDMP_OTHER_ENTRY = b"ERR the producer has added another entry with this id"
STREAM_GONE = b"UNBLOCKED the stream key no longer exists"
GROUP_GONE = b"NOGROUP the consumer group this client was blocked on no longer exists"

no_group = Template("NOGROUP No such key '<key>' or consumer group '<group>'", c_strings=True)
no_group_to_read = Template(
    "NOGROUP No such key '<key>' or consumer group '<group>' in XREADGROUP with GROUP option",
    c_strings=True,
)
no_group_for_key = Template(
    "NOGROUP No such consumer group '<group>' for key name '<key>'", c_strings=True
)
bad_claim_argument = Template("ERR Invalid <what> argument for <command>")
unrecognized_claim_option = Template("ERR Unrecognized XCLAIM option '<sent>'", c_strings=True)
pending_limit = Template(
    "ERR XReadGroup is cancelled. Pending Entries List limit per consumer is about to be reached. "
    "Limit: <limit>, Current PEL size: <size>, Requested Read: <wanted>, Key: <key>, "
    "Group: <group>, Consumer: <consumer>."
)
"""From the vendor's documentation."""

# -- JSON ------------------------------------------------------------------------------------------

JSON_OTHER_TYPE = b"Existing key has wrong Redis type"
"""Sent by RedisJSON as it is, without an error code."""
JSON_NO_KEY = b"ERR could not perform this operation on a key that doesn't exist"
JSON_NOT_AT_ROOT = b"ERR new objects must be created at the root"
JSON_NOT_STATIC = b"ERR Err wrong static path"
JSON_OUT_OF_BOUNDS = b"ERR index out of bounds"
JSON_OPERAND = b"ERR expected a number"
JSON_OUT_OF_RANGE = b"ERR value out of range"
JSON_NOT_FINITE = b"ERR result is not a number"
JSON_TOO_DEEP = b"ERR the document would be nested too deeply"
invalid_json_path = Template("ERR invalid path: <reason>")
missing_json_path = Template("ERR Path '<path>' does not exist")
unusable_json_path = Template("ERR Path '<path>' does not exist or <reason>")
wrong_json_type = Template(
    "WRONGTYPE wrong type of path value - expected <expected> but found <found>"
)

# -- arrays ----------------------------------------------------------------------------------------

ARRAY_INDEX = b"ERR invalid array index"
ARRAY_RANGE = b"ERR range exceeds maximum of 1000000 items"
ARRAY_OVERFLOW = b"ERR insert index overflow"
"""This error and the two above are from the vendor's documentation."""
START_AFTER_END = b"ERR start must not be greater than end"
RING_SIZE = b"ERR size must be greater than 0"
LIMIT_NOT_POSITIVE = b"ERR LIMIT must be greater than 0"
NO_PREDICATE = b"ERR at least one of EXACT, MATCH, GLOB and RE is required"
TOO_MANY_PREDICATES = b"ERR too many predicates: at most 250 are allowed"
LONG_REGEX = b"ERR the regular expression is too long: at most 2048 bytes are allowed"
invalid_regex = Template("ERR invalid regular expression: it <reason>")
"""The wording of this error and the six above is decided here."""

# -- generic -------------------------------------------------------------------------------------

BUSYKEY = b"BUSYKEY Target key name already exists."
NO_DUMP_OF_INDEX = b"ERR an index cannot be dumped: create the index again"
"""The wording is decided here."""
indexed_stream = Template(
    "ERR the stream <key> has a search index: drop the index before renaming or copying"
)
"""The wording is decided here."""
BAD_DUMP = b"ERR DUMP payload version or checksum are wrong"
BAD_DUMP_FORMAT = b"ERR Bad data format"
DB_INDEX = b"ERR DB index is out of range"
FIRST_DB_INDEX = b"ERR invalid first DB index"
SECOND_DB_INDEX = b"ERR invalid second DB index"
INVALID_TTL = b"ERR Invalid TTL value, must be >= 0"
INVALID_IDLETIME = b"ERR Invalid IDLETIME value, must be >= 0"
INVALID_FREQ = b"ERR Invalid FREQ value, must be >= 0 and <= 255"
NOT_LFU = (
    b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. "
    b"Please note that when switching between policies at runtime LRU and LFU data will take "
    b"some time to adjust."
)
LFU = (
    b"ERR An LFU maxmemory policy is selected, idle time not tracked. "
    b"Please note that when switching between policies at runtime LRU and LFU data will take "
    b"some time to adjust."
)
EXPIRE_NX_WITH_OTHERS = b"ERR NX and XX, GT or LT options at the same time are not compatible"
EXPIRE_GT_AND_LT = b"ERR GT and LT options at the same time are not compatible"
WAITAOF_NO_FILE = b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
SORT_SCORES = b"ERR One or more scores can't be converted into double"

unsupported_option = Template("ERR Unsupported option <option>", c_strings=True)

# -- server --------------------------------------------------------------------------------------

DEBUG_PUSH = b"ERR RESP2 is not supported by this command"
DEBUG_RELOAD = b"ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."
DEBUG_THRESHOLD = b"ERR argument must be a memory value bigger than 1 and smaller than 4gb"
DEBUG_PROTOCOL = (
    b"ERR Wrong protocol type name. Please use one of the following: "
    b"string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
)
DEBUG_SLEEP_ALONE = b"ERR DEBUG SLEEP blocks: use a connection to the database port"
CONFIG_FIXED = "can't set immutable config"
CONFIG_PROTECTED = "can't set protected config"
CONFIG_EVENTS = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
CONFIG_DUPLICATE = "duplicate parameter"
CANNOT_LISTEN = "Unable to listen on this port. Check server logs."
CANNOT_BIND = "Failed to bind to specified addresses."
TOO_MANY_ADDRESSES = "Too many bind addresses specified."
NO_TLS = "Unable to update TLS configuration. Check server logs."
CONFIG_NOT_BOOLEAN = "argument must be 'yes' or 'no'"
CONFIG_NOT_INTEGER = "argument couldn't be parsed into an integer"
CONFIG_NOT_MEMORY = "argument must be a memory value"
CONFIG_NOT_SHARE = "argument must be a memory or percent value"
CONFIG_PERCENT = "percentage argument must be less or equal to 100"
CONFIG_HOSTNAME = "Hostnames may only contain alphanumeric characters, hyphens or dots"
CONFIG_LONG_HOSTNAME = "Hostnames must be less than 256 characters"
CONFIG_TITLE = "template format is invalid or contains unknown variables"
CONFIG_SAVE_AND_NOSAVE = "shutdown options SAVE and NOSAVE can't be used simultaneously"
CONFIG_SAVE = "Invalid save parameters"
CONFIG_LIMIT_COUNT = "Wrong number of arguments in buffer limit configuration."
CONFIG_LIMIT_CLASS = "Invalid client class specified in buffer limit configuration."
CONFIG_LIMIT_NUMBER = "Error in hard, soft or soft_seconds setting in buffer limit configuration."
CONFIG_PERCENTILE = "Invalid latency-tracking-info-percentiles parameters"
CONFIG_PERCENTILE_RANGE = (
    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
)
CONFIG_OOM_COUNT = "wrong number of arguments"
CONFIG_OOM_NUMBER = "Invalid oom-score-adj-values, elements must be between -2000 and 2000."
NO_CONFIG_FILE = b"ERR The server is running without a config file"
NO_KEY_ARGUMENTS = b"ERR The command has no key arguments"
GETKEYS_UNKNOWN = b"ERR Invalid command specified"
GETKEYS_ARITY = b"ERR Invalid number of arguments specified for command"
GETKEYS_ARGUMENTS = b"ERR Invalid arguments specified for command"
SLOWLOG_COUNT = b"ERR count should be greater than or equal to -1"
SHUTDOWN_REFUSED = b"ERR Errors trying to SHUTDOWN. Check logs."
NO_SHUTDOWN = b"ERR No shutdown in progress."
BAD_MASTER_PORT = b"ERR Invalid master port"
REPLICAOF_REFUSED = b"ERR REPLICAOF not allowed in cluster mode."
NO_REPLICAS = b"ERR FAILOVER requires connected replicas."
NO_FAILOVER = b"ERR No failover in progress."
SYNC_REFUSED = b"NOMASTERLINK Can't SYNC while not connected with my master"
MIGRATE_REFUSED = b"IOERR error or timeout connecting to the client"
CLUSTER_DISABLED = b"ERR This instance has cluster support disabled"
CLUSTER_DOWN = b"CLUSTERDOWN The cluster is down"
SLOT_NOT_SERVED = b"CLUSTERDOWN Hash slot not served"
CROSSSLOT = b"CROSSSLOT Keys in request don't hash to the same slot"
TRYAGAIN = b"TRYAGAIN Multiple keys request during rehashing of slot"
moved = Template("MOVED <slot> <address>")
ask = Template("ASK <slot> <address>")
WAIT_ON_REPLICA = (
    b"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a "
    b"replica is configured to be writable (which is not the default) writes to replicas are just "
    b"local and are not propagated."
)
READ_ONLY_REPLICA = b"READONLY You can't write against a read only replica."
SELECT_IN_CLUSTER = b"ERR SELECT is not allowed in cluster mode"
MOVE_IN_CLUSTER = b"ERR MOVE is not allowed in cluster mode"
SWAPDB_IN_CLUSTER = b"ERR SWAPDB is not allowed in cluster mode"
COPY_IN_CLUSTER = b"ERR Copying to another database is not allowed in cluster mode"
FAILOVER_IN_CLUSTER = (
    b"ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead."
)
SORT_BY_IN_CLUSTER = b"ERR BY option of SORT denied in Cluster mode."
SORT_GET_IN_CLUSTER = b"ERR GET option of SORT denied in Cluster mode."
NO_SUCH_MASTER = b"ERR No such master with that name"
DUPLICATE_MASTER = b"ERR Duplicate master name."
ONLY_HELLO = b"ERR Only HELLO messages are accepted by Sentinel instances."
INVALID_QUORUM = b"ERR Invalid quorum"
INVALID_PORT = b"ERR Invalid port"
INVALID_HOST = b"ERR Invalid IP address or hostname specified"
UNKNOWN_SIMULATION = b"ERR Unknown failure simulation specified"
SENTINEL_CONFIG_FORMS = (
    b"ERR Only SENTINEL CONFIG GET <option> / SET <option> <value> are supported."
)
SCRIPTS_DENIED = (
    b"ERR Reconfiguration of scripts path is denied for security reasons. Check the "
    b"deny-scripts-reconfig configuration directive in your Sentinel configuration"
)
unknown_sentinel_option = Template(
    "ERR Unknown option or number of arguments for SENTINEL <subcommand> '<option>'"
)
invalid_sentinel_option = Template(
    "ERR Invalid argument '<value>' for SENTINEL <subcommand> '<option>'"
)
unknown_sentinel_config = Template("ERR Invalid argument '<option>' to SENTINEL CONFIG SET")
invalid_sentinel_config = Template("ERR Invalid value '<value>' to SENTINEL CONFIG SET '<option>'")
FIXED_NODES = b"ERR The nodes of this server are fixed"
FORGET_MYSELF = b"ERR I tried hard but I can't forget myself..."
FORGET_MASTER = b"ERR Can't forget my master!"
FAILOVER_ON_MASTER = b"ERR You should send CLUSTER FAILOVER to a replica"
NOT_A_MASTER = b"ERR The specified node is not a master"
INVALID_SLOT = b"ERR Invalid slot"
INVALID_SLOT_OR_COUNT = b"ERR Invalid slot or number of keys"
INVALID_SLOT_RANGE = b"ERR Invalid or out of range slot"
SETSLOT_ACTION = b"ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"
SETSLOT_ON_REPLICA = b"ERR You can use SETSLOT only with masters."
FLUSHSLOTS_WITH_KEYS = b"ERR DB must be empty to perform CLUSTER FLUSHSLOTS."
EPOCH_OF_SEVERAL = (
    b"ERR The user can assign a config epoch only when the node does not know any other node."
)
EPOCH_SET = b"ERR Node config epoch is already non-zero"
invalid_epoch = Template("ERR Invalid config epoch specified: <epoch>")
unknown_node = Template("ERR Unknown node <id>")
unknown_slot_node = Template("ERR I don't know about node <id>")
slot_busy = Template("ERR Slot <slot> is already busy")
slot_unassigned = Template("ERR Slot <slot> is already unassigned")
slot_repeated = Template("ERR Slot <slot> specified multiple times")
slots_reversed = Template("ERR start slot number <first> is greater than end slot number <last>")
not_owner = Template("ERR I'm not the owner of hash slot <slot>")
already_owner = Template("ERR I'm already the owner of hash slot <slot>")
slot_with_keys = Template(
    "ERR Can't assign hashslot <slot> to a different node while I still hold keys for this hash slot."
)
bad_base_port = Template("ERR Invalid TCP base port specified: <port>")
bad_bus_port = Template("ERR Invalid TCP bus port specified: <port>")
CLIENT_NAME = b"ERR Client names cannot contain spaces, newlines or special characters."
CLIENT_ID = b"ERR Invalid client ID"
CLIENT_KILL_ID = b"ERR client-id should be greater than 0"
CLIENT_PAUSE_MODE = b"ERR CLIENT PAUSE mode must be WRITE or ALL"
CLIENT_UNBLOCK_MODE = b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
UNBLOCKED = b"UNBLOCKED client unblocked via CLIENT UNBLOCK"
NOT_IMPORT_MODE = b"ERR Server is not in import mode"
SECOND_REDIRECT = b"ERR A client can only redirect to a single other client"
NO_REDIRECT_CLIENT = b"ERR The client ID you want redirect to does not exist"
PREFIX_NEEDS_BCAST = b"ERR PREFIX option requires BCAST mode to be enabled"
OPTIN_AND_OPTOUT = b"ERR You can't specify both OPTIN mode and OPTOUT mode"
OPT_WITH_BCAST = b"ERR OPTIN and OPTOUT are not compatible with BCAST"
CACHING_WITHOUT_TRACKING = (
    b"ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
    b"OPTOUT mode enabled"
)
CACHING_YES = b"ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
CACHING_NO = b"ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
FAILOVER_TIMEOUT = b"ERR FAILOVER timeout must be greater than 0"
MIGRATE_KEYS = (
    b"ERR When using MIGRATE KEYS option, the key argument must be set to the empty string"
)
NO_SUCH_CLIENT = b"ERR No such client"
NOPROTO = b"NOPROTO unsupported protocol version"
PROTO_NOT_INTEGER = b"ERR Protocol version is not an integer or out of range"
HELLO_NOAUTH = (
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    b"<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
    b"RESP protocol version at the same time"
)
WRONGPASS = b"WRONGPASS invalid username-password pair or user is disabled."
AUTH_WITHOUT_PASSWORD = (
    b"ERR AUTH <password> called without any password configured for the default user. "
    b"Are you sure your configuration is correct?"
)

disabled_by_option = Template(
    'ERR <command> command not allowed. If the <option> option is set to "local", you can run it '
    "from a local connection, otherwise you need to set this option in the configuration file, and "
    "then restart the server."
)
unknown_config = Template("ERR Unknown option or number of arguments for CONFIG SET - '<name>'")
config_failed = Template("ERR CONFIG SET failed (possibly related to argument '<name>') - <reason>")
no_samples = Template("ERR No samples available for event '<event>'")
no_such_user = Template("ERR No such user '<name>'")
unknown_client_type = Template("ERR Unknown client type '<word>'")
unknown_client_attribute = Template("ERR Unrecognized option '<word>'")
bad_client_attribute = Template("ERR <name> cannot contain spaces, newlines or special characters.")
unrecognized_replconf = Template("ERR Unrecognized REPLCONF option: <word>")
hello_syntax = Template("ERR Syntax error in HELLO option '<option>'")

# -- the database port ---------------------------------------------------------------------------

SSUBSCRIBE_DENIED = b"ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"
MONITOR_DENIED = b"ERR MONITOR isn't allowed for DENY BLOCKING client"
MONITORS_MAY_NOT = b"ERR Replica can't interact with the keyspace"
BCAST_SWITCH = (
    b"ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then "
    b"re-enabling it with a different mode."
)
OPT_SWITCH = (
    b"ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then "
    b"re-enabling it with a different mode."
)

overlapping_prefixes = Template(
    "ERR Prefix '<prefix>' overlaps with <what> '<other>'. Prefixes for a single client must not "
    "overlap."
)
listeners_may_not = Template(
    "ERR Can't execute '<name>': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
    "allowed in this context"
)

# -- users ---------------------------------------------------------------------------------------

RULES_CHANGED = {
    "command": b"no permission to execute the command or subcommand",
    "key": b"no permission to touch the specified keys",
    "channel": b"no permission to access one of the channels used as arguments",
}
"""Reasons why a queued command may no longer run, by the kind of permission that is missing."""
SORT_BY_DENIED = b"ERR BY option of SORT denied due to insufficient ACL permissions."
SORT_GET_DENIED = b"ERR GET option of SORT denied due to insufficient ACL permissions."
ACL_NOT_SUPPORTED = "The rule is not supported"
ACL_NO_TOKEN = "The password is not a token of ACL GENTOKEN"
ACL_WEAK_PASSWORD = b"ERR The password is too weak"
ACL_SYNTAX = "Syntax error"
ACL_UNKNOWN_COMMAND = "Unknown command or category name in ACL"
ACL_NO_PASSWORD = "The password you are trying to remove from the user does not exist"
ACL_BAD_HASH = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
ACL_PATTERN_AFTER_ALL_KEYS = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have "
    "any effect. Try 'resetkeys' to start with an empty list of patterns"
)
ACL_PATTERN_AFTER_ALL_CHANNELS = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not "
    "have any effect. Try 'resetchannels' to start with an empty list of channels"
)
ACL_FIRST_WORD_OF_SUBCOMMAND = "Allowing first-arg of a subcommand is not supported"
ACL_USER_NAME = b"ERR Usernames can't contain spaces or null characters"
ACL_GENPASS_BITS = (
    b"ERR ACL GENPASS argument must be the number of bits for the output password, a positive "
    b"number up to 4096"
)
ACL_NO_FILE = (
    b"ERR This Redis instance is not configured to use an ACL file. You may want to specify users "
    b"via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "
    b"configuration file set) in order to store users in the Redis configuration."
)

NO_KEY_PERMISSION = (
    b"NOPERM this user has no permissions to access one of the keys used as arguments"
)
NO_CHANNEL_PERMISSION = (
    b"NOPERM this user has no permissions to access one of the channels used as arguments"
)
rules_changed = Template(
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC "
    "call. This command is no longer allowed for the following reason: <reason>"
)
bad_acl_rule = Template("ERR Error in ACL SETUSER modifier '<rule>': <reason>", c_strings=True)
unmatched_parenthesis = Template("ERR Unmatched parenthesis in acl selector starting at '<rule>'.")
unknown_category = Template("ERR Unknown category '<name>'", c_strings=True)
user_not_found = Template("ERR User '<name>' not found", c_strings=True)
command_not_found = Template("ERR Command '<name>' not found", c_strings=True)
fixed_user = Template("ERR The '<name>' user cannot be modified")  # decided here
cannot_remove = Template("ERR The '<name>' user cannot be removed")
rest_token_failed = Template('ERR Wrong password or user "<name>" does not exist')

# -- vectors -------------------------------------------------------------------------------------
# The vendor documents the templates; the other errors are decided here.

vector_set_dimension = Template(
    "ERR the vectors of the set have the dimension <expected>, not <actual>"
)
vector_filter = Template("ERR syntax error in FILTER: <reason>")
index_exists = Template("ERR Index <name> already exists")
index_differs = Template("ERR Index <name> already exists with a different configuration")
index_missing = Template("ERR Index <name> is not found")
vector_dimension = Template("ERR vector dimension mismatch: expected <dimension>, got <count>")
VECTOR_DIM = b"ERR DIM must be an integer from 1 to 32768"
VECTOR_METRIC = b"ERR METRIC must be COSINE, EUCLIDEAN or DOT"
VECTOR_TOPK = b"ERR TOPK must be an integer from 1 to 1000"
VECTOR_PROFILE = b"ERR PROFILE must be FAST, BALANCED or PRECISE"
VECTOR_ID = b"ERR the id of a vector must not be empty"
VECTOR_VALUES = b"ERR VALUES must be followed by a positive count and as many numbers"
VECTOR_BLOB = b"ERR a vector blob must consist of 4-byte floats, at least one"
VECTOR_REDUCE = b"ERR REDUCE must be an integer from 1 to the dimension of the vector"
VECTOR_TOO_LONG = b"ERR a vector must have at most 32768 dimensions"
VECTOR_ATTRIBUTES = b"ERR the attributes of an element must be valid JSON"
VECTOR_OTHER_FORM = b"ERR the vector set has another quantization"
VECTOR_OTHER_REDUCE = b"ERR the vector set reduces its vectors to another dimension, or not at all"
NO_VECTOR_SET = b"ERR the vector set does not exist"
NO_ELEMENT = b"ERR the element is not in the vector set"
VECTOR_NOT_FINITE = b"ERR the numbers of a vector must be finite 32-bit floats"

# -- REST ----------------------------------------------------------------------------------------
# The vendor documents the errors for limits and tokens; the other errors are decided here.

REST_UNAUTHORIZED = "WRONGPASS invalid or missing auth token"
MAX_REQUEST_SIZE = b"ERR max request size exceeded"
MAX_CLIENTS = b"ERR max number of clients reached"
METHOD_NOT_ALLOWED = "ERR method not allowed: use GET, POST, PUT or HEAD"
BAD_JSON = "ERR failed to parse the request body as JSON"
BAD_ARGUMENTS = "ERR invalid command arguments"
EMPTY_COMMAND = "ERR empty command"
EMPTY_PIPELINE = "ERR empty pipeline request"
BAD_FORMAT = "ERR unsupported response format: use json or resp2"
FORMAT_WITH_BASE64 = "ERR response format resp2 cannot be combined with base64 encoding"


def _limit(text: str, page: str) -> Template:
    """Return the vendor's error for a limit, with the address of its page."""
    return Template(f"ERR {text}. See {_PAGES}{page} for details")


_PAGES = "https://upstash.com/docs/redis/troubleshooting/"
max_request_size = _limit(
    "max request size exceeded. Limit: <limit> bytes, Actual: <actual> bytes",
    "max_request_size_exceeded",
)
max_daily_requests = _limit(
    "max daily request limit exceeded. Limit: <limit>, Usage: <usage>", "max_requests_limit"
)
max_requests = _limit(
    "max requests limit exceeded. Limit: <limit>, Usage: <usage>", "max_requests_limit"
)
max_record_size = _limit(
    "max single record size exceeded. Limit: <limit> bytes, Actual: <actual> bytes",
    "max_record_size_exceeded",
)
max_data_size = _limit(
    "DB capacity quota exceeded. Threshold: <limit> bytes, Usage: <usage> bytes",
    "db_capacity_quota_exceeded",
)
max_connections = _limit(
    "max concurrent connections exceeded. Limit: <limit>, Usage: <usage>",
    "max_concurrent_connections",
)
max_key_size = _limit(
    "max key size exceeded. Limit: <limit> bytes, Actual: <actual> bytes", "max_key_size_exceeded"
)
unsupported_arguments = Template("ERR <kind> args are not supported")
pipeline_too_long = Template("ERR max pipeline length exceeded. Limit: <limit>, Actual: <actual>")
