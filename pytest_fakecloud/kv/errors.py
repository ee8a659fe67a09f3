"""Every error text of the service, and the two exceptions that carry them.

Texts are bytes, because they may quote what a client sent. Those without a source named beside
them were observed on Redis 7.0 and Valkey 9.1.
"""

from __future__ import annotations

from ..kernel.errors import ServiceError

__all__ = ["CommandError", "RestError"]


class CommandError(Exception):
    """A command that failed; ``text`` is what the client reads, class word first.

    Raised by commands, and also placed inside a list reply where one member failed.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandError) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class RestError(ServiceError):
    """A request the REST interface refuses before any command runs."""


# -- dispatch ------------------------------------------------------------------------------------

SYNTAX = b"ERR syntax error"
WRONGTYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
NOT_INTEGER_VENDOR = b"ERR value is not an int or out of range"  # the vendor's pipeline example
NOT_FLOAT = b"ERR value is not a valid float"
OUT_OF_RANGE = b"ERR value is out of range"
NOT_POSITIVE = b"ERR value is out of range, must be positive"
NO_SUCH_KEY = b"ERR no such key"
SAME_OBJECT = b"ERR source and destination objects are the same"
INDEX_OUT_OF_RANGE = b"ERR index out of range"
OVERFLOW = b"ERR increment or decrement would overflow"
NAN_OR_INFINITY = b"ERR increment would produce NaN or Infinity"
INVALID_CURSOR = b"ERR invalid cursor"
NUMKEYS_NOT_POSITIVE = b"ERR numkeys should be greater than 0"
COUNT_NOT_POSITIVE = b"ERR count should be greater than 0"
LIMIT_NEGATIVE = b"ERR LIMIT can't be negative"
NOAUTH = b"NOAUTH Authentication required."


def wrong_arity(name: str) -> bytes:
    """The text for a wrong number of arguments; ``name`` is lower case, ``xgroup|create`` style."""
    return f"ERR wrong number of arguments for '{name}' command".encode()


def unknown_command(argv: list[bytes]) -> bytes:
    """The text for a name no command has, quoting at most 128 bytes of its arguments."""
    quoted = b""
    for argument in argv[1:]:
        if len(quoted) >= 128:
            break
        quoted += b"'" + argument.split(b"\0")[0][: 128 - len(quoted)] + b"' "
    name = argv[0].split(b"\0")[0][:128]
    return one_line(b"ERR unknown command '" + name + b"', with args beginning with: " + quoted)


def unknown_subcommand(container: str, sent: bytes) -> bytes:
    """The text for a sub-command its container does not have."""
    sent = sent.split(b"\0")[0][:128]
    return one_line(
        b"ERR unknown subcommand '" + sent + b"'. Try " + container.encode() + b" HELP."
    )


def bad_subcommand_arguments(container: str, sent: bytes) -> bytes:
    """The text a sub-command itself gives for arguments it cannot read."""
    sent = sent.split(b"\0")[0][:128]
    return one_line(
        b"ERR unknown subcommand or wrong number of arguments for '"
        + sent
        + b"'. Try "
        + container.encode()
        + b" HELP."
    )


def not_over_rest(name: str) -> bytes:
    """The text for a command REST does not offer (decided here: the vendor publishes none)."""
    return f"ERR Command is not available: '{name}'".encode()


def no_permission(name: str) -> bytes:
    """The text for a command the user may not run (the vendor's older wording)."""
    text = f"NOPERM this user has no permissions to run the '{name}' command or its subcommand"
    return text.encode()


def invalid_expire(name: str) -> bytes:
    """The text for an expiry that is not positive or overflows; ``name`` is lower case."""
    return f"ERR invalid expire time in '{name}' command".encode()


def one_line(text: bytes) -> bytes:
    """The text with line breaks as spaces, as an error reply must be one line."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


# -- transactions --------------------------------------------------------------------------------

EXEC_WITHOUT_MULTI = b"ERR EXEC without MULTI"
DISCARD_WITHOUT_MULTI = b"ERR DISCARD without MULTI"
NESTED_MULTI = b"ERR MULTI calls can not be nested"
WATCH_INSIDE_MULTI = b"ERR WATCH inside MULTI is not allowed"
EXECABORT = b"EXECABORT Transaction discarded because of previous errors."
NOT_IN_TRANSACTION = b"ERR Command not allowed inside a transaction"


def exec_aborted_by(reason: bytes) -> bytes:
    """The text for an EXEC that is itself malformed; ``reason`` is the error without its class."""
    return b"EXECABORT Transaction discarded because of: " + reason


# -- strings and bitmaps -------------------------------------------------------------------------

STRING_TOO_LONG = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
DECREMENT_OVERFLOW = b"ERR decrement would overflow"
MSETEX_NUMKEYS = b"ERR invalid numkeys value"
BAD_DIGEST = b"ERR digest must be exactly 16 hexadecimal characters"  # decided here
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


def bitop_needs_two(operation: str) -> bytes:
    """The text for DIFF, DIFF1, ANDOR with fewer than two sources (the vendor's SDK tests)."""
    return f"ERR BITOP {operation} must be called with at least two source keys.".encode()


# -- hashes --------------------------------------------------------------------------------------

HASH_NOT_INTEGER = b"ERR hash value is not an integer"
HASH_NOT_FLOAT = b"ERR hash value is not a float"
VALUE_NAN_OR_INFINITY = b"ERR value is NaN or Infinity"

# -- generic -------------------------------------------------------------------------------------

BUSYKEY = b"BUSYKEY Target key name already exists."
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
SORT_SCORES = b"ERR One or more scores can't be converted into double"


def unsupported_option(option: bytes) -> bytes:
    """The text EXPIRE and its kin give for a word they do not know."""
    return one_line(b"ERR Unsupported option " + option.split(b"\0")[0])


# -- REST ----------------------------------------------------------------------------------------

REST_UNAUTHORIZED = "WRONGPASS invalid or missing auth token"  # the vendor's documentation
MAX_REQUEST_SIZE = b"ERR max request size exceeded"  # the vendor's documentation
MAX_DAILY_REQUESTS = b"ERR max daily request limit exceeded"  # the vendor's documentation
