"""String commands that treat values as bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....core.budget import spend
from ... import errors
from ...algorithms.lcs import common_length, common_matches
from ...engine.engine import Session
from ...engine.keyspace import String
from ...errors import CommandError, wrong_arity
from ...reply import OK, Map, Reply
from ...table.expiry import EXPIRY_WORDS, expiry_ms
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ..arguments import options


def check_length(session: Session, size: int) -> None:
    if size > session.engine.config.number("proto-max-bulk-len"):
        raise CommandError(errors.STRING_TOO_LONG)


_DIGEST = re.compile(rb"[0-9a-fA-F]{16}")
_FAR = 1 << 20
_BYTES_A_STEP = 100


def grow(session: Session, key: bytes, value: String | None, size: int) -> bytearray:
    """Return the string of a key as a mutable buffer, padded with zeros to at least ``size`` bytes."""
    present = value or b""
    if type(present) is bytearray and size - len(present) < _FAR:
        buffer = present
        buffer.extend(bytes(max(0, size - len(present))))
        return buffer
    # Allocate the final size in one step, as Redis does: extending the buffer by a large amount
    # would copy it.
    buffer = bytearray(max(size, len(present)))
    buffer[: len(present)] = present
    session.db.set(key, buffer, keep_ttl=True, event="")
    return buffer


# -- whole values --------------------------------------------------------------------------------


@command("GET")
def get(session: Session, args: Args) -> Reply:
    """Return the string value of a key."""
    return _plain(session.db.string(args[0]))


_CONDITIONS = (b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE")
"""Options that compare the value."""


@command("SET")
def set_(session: Session, args: Args) -> Reply:
    """Set the string value of a key, optionally with a TTL and a condition."""
    db = session.db
    key = args[0]
    if len(args) == 2:
        db.set(key, args[1])
        return OK
    words = _set_words(session, args, 2)
    at_ms = words.expires_at(session, "set")
    old = db.string(key) if words.get else db.find(key)
    if not _condition_met(words.condition, words.operand, old):
        return _plain(old) if words.get else None
    db.set(key, args[1], words.keep_ttl)
    if at_ms is not None:
        _let_expire(session, key, at_ms)
    return _plain(old) if words.get else OK


def _let_expire(session: Session, key: bytes, at_ms: int) -> None:
    """Set the expiry of a key that was just set; delete the key if that time is in the past."""
    if at_ms > session.now_ms:
        session.db.expire_at(key, at_ms)
    else:
        session.db.announce(key, "expire")
        session.db.delete(key, "expired")


@dataclass(eq=False, repr=False, slots=True)
class _Words:
    condition: bytes = b""
    operand: bytes = b""
    expiry: tuple[bytes, bytes] | None = None
    get: bool = False
    keep_ttl: bool = False
    persist: bool = False

    def expires_at(self, session: Session, name: str) -> int | None:
        """Return the expiry in Unix milliseconds; an error contains the command's name."""
        return None if self.expiry is None else expiry_ms(*self.expiry, session.now_ms, name)


def _set_words(
    session: Session, args: Args, at: int, allowed: frozenset[bytes] | None = None
) -> _Words:
    words = _Words()
    while at < len(args):
        word = args[at].upper()
        follows = at + 1 < len(args)
        lifetime_free = not words.keep_ttl and not words.persist
        if words.expiry is not None and words.expiry[0] != word:
            lifetime_free = False
        if allowed is not None and word not in allowed:
            raise CommandError(errors.SYNTAX)
        if word in (b"NX", b"XX") and words.condition in (b"", word):
            words.condition = word
        elif word == b"GET":
            words.get = True
        elif word == b"KEEPTTL" and lifetime_free | words.keep_ttl:
            words.keep_ttl = True
        elif word == b"PERSIST" and allowed is not None and lifetime_free | words.persist:
            words.persist = True
        elif word in EXPIRY_WORDS and lifetime_free and follows:
            at += 1
            words.expiry = (word, args[at])
        elif word in _CONDITIONS and not words.condition and follows:
            if not session.engine.table.knows[f"SET {word.decode()}"]:
                raise CommandError(errors.SYNTAX)
            at += 1
            words.condition, words.operand = word, args[at]
        else:
            raise CommandError(errors.SYNTAX)
        at += 1
    return words


def _condition_met(condition: bytes, operand: bytes, value: object) -> bool:
    if not condition:
        return True
    if condition == b"NX":
        return value is None
    if condition == b"XX":
        return value is not None
    if condition in (b"IFDEQ", b"IFDNE") and not _DIGEST.fullmatch(operand):
        raise CommandError(errors.BAD_DIGEST)
    if value is None:
        return condition in (b"IFNE", b"IFDNE")
    if not isinstance(value, bytes | bytearray):
        raise CommandError(errors.WRONGTYPE)
    whole = condition in (b"IFEQ", b"IFNE")
    same = value == operand if whole else _digest(value) == operand.lower()
    return same == (condition in (b"IFEQ", b"IFDEQ"))


def _digest(value: String) -> bytes:
    import xxhash  # imported here because it is rarely needed

    digits: str = xxhash.xxh3_64_hexdigest(value)
    return digits.encode()


def _plain(value: object) -> Reply:
    if type(value) is bytearray:
        # Charge the budget, because every command of a transaction may copy a large value.
        spend(len(value) // _BYTES_A_STEP)
        return bytes(value)
    return value if isinstance(value, bytes) else None


@command("SETNX")
def setnx(session: Session, args: Args) -> Reply:
    """Set the string value of a key only if the key does not exist."""
    if session.db.lookup(args[0]) is not None:
        return 0
    session.db.set(args[0], args[1])
    return 1


@command("SETEX")
def setex(session: Session, args: Args) -> Reply:
    """Set the string value of a key and its TTL in seconds."""
    return _set_for(session, args, expiry_ms(b"EX", args[1], session.now_ms, "setex"))


@command("PSETEX")
def psetex(session: Session, args: Args) -> Reply:
    """Set the string value of a key and its TTL in milliseconds."""
    return _set_for(session, args, expiry_ms(b"PX", args[1], session.now_ms, "psetex"))


def _set_for(session: Session, args: Args, at_ms: int) -> Reply:
    session.db.set(args[0], args[2])
    session.db.expire_at(args[0], at_ms)
    return OK


@command("GETSET")
def getset(session: Session, args: Args) -> Reply:
    """Set the string value of a key and return its previous value."""
    old = session.db.string(args[0])
    session.db.set(args[0], args[1])
    return _plain(old)


@command("GETDEL")
def getdel(session: Session, args: Args) -> Reply:
    """Return the string value of a key and delete the key."""
    value = session.db.string(args[0])
    if value is not None:
        session.db.delete(args[0])
    return _plain(value)


_GETEX_WORDS = frozenset({*EXPIRY_WORDS, b"PERSIST"})


@command("GETEX")
def getex(session: Session, args: Args) -> Reply:
    """Return the string value of a key, and optionally set or remove its TTL."""
    words = _set_words(session, args, 1, _GETEX_WORDS)
    value = session.db.string(args[0])
    if value is None:
        return None
    at_ms = words.expires_at(session, "getex")
    if at_ms is not None:
        session.db.expire_at(args[0], at_ms)
    elif words.persist:
        session.db.persist(args[0])
    return _plain(value)


@command("MGET")
def mget(session: Session, args: Args) -> Reply:
    """Return the string values of several keys; nil for each key without a string."""
    lookup = session.db.lookup
    known: dict[bytes, Reply] = {}
    replies: list[Reply] = []
    for key in args:
        # Copy a large value only once, even if its key is repeated.
        if key not in known:
            known[key] = _plain(lookup(key))
        replies.append(known[key])
    return replies


@command("MSET")
def mset(session: Session, args: Args) -> Reply:
    """Set the string values of several keys atomically."""
    if len(args) % 2:
        raise CommandError(wrong_arity("mset"))
    for at in range(0, len(args), 2):
        session.db.set(args[at], args[at + 1])
    return OK


@command("MSETNX")
def msetnx(session: Session, args: Args) -> Reply:
    """Set the string values of several keys only if none of the keys exist."""
    if len(args) % 2:
        raise CommandError(wrong_arity("msetnx"))
    if any(session.db.lookup(key) is not None for key in args[::2]):
        return 0
    mset(session, args)
    return 1


_MSETEX_WORDS = frozenset({*EXPIRY_WORDS, b"NX", b"XX", b"KEEPTTL"})


@command("MSETEX")
def msetex(session: Session, args: Args) -> Reply:
    """Set the string values of several keys with a shared TTL and condition."""
    count = parse_int(args[0], 1, 2**31 - 1, errors.MSETEX_NUMKEYS)
    end = 1 + 2 * count
    if end > len(args):
        raise CommandError(errors.SYNTAX)
    words = _set_words(session, args, end, _MSETEX_WORDS)
    at_ms = words.expires_at(session, "msetex")
    keys = args[1:end:2]
    if words.condition:
        wanted = words.condition == b"XX"
        if any((session.db.lookup(key) is not None) != wanted for key in keys):
            return 0
    for at, key in enumerate(keys):
        session.db.set(key, args[2 + 2 * at], words.keep_ttl)
        if at_ms is not None:
            _let_expire(session, key, at_ms)
    return 1


# -- conditional removal, digests ----------------------------------------------------------------


@command("DELEX")
def delex(session: Session, args: Args) -> Reply:
    """Delete a key only if its string value meets a condition."""
    if len(args) not in (1, 3):
        raise CommandError(wrong_arity("delex"))
    value = session.db.lookup(args[0])
    if len(args) == 3:
        condition = args[1].upper()
        if condition not in _CONDITIONS:
            raise CommandError(errors.SYNTAX)
        if not _condition_met(condition, args[2], value):
            return 0
    return int(session.db.delete(args[0]))


@command("DELIFEQ")
def delifeq(session: Session, args: Args) -> Reply:
    """Delete a key only if its string value equals the given value."""
    value = session.db.string(args[0])
    if value is None or value != args[1]:
        return 0
    return int(session.db.delete(args[0]))


@command("DIGEST")
def digest_(session: Session, args: Args) -> Reply:
    """Return the XXH3 digest of a string value as 16 hexadecimal digits."""
    value = session.db.string(args[0])
    return None if value is None else _digest(value)


# -- parts of values -----------------------------------------------------------------------------


@command("APPEND")
def append(session: Session, args: Args) -> Reply:
    """Append bytes to the string value of a key and return its new length."""
    key, addition = args
    value = session.db.string(key)
    if value is None:
        session.db.set(key, addition)
        return len(addition)
    check_length(session, len(value) + len(addition))
    buffer = grow(session, key, value, 0)
    buffer += addition
    session.db.touch(key)
    return len(buffer)


@command("STRLEN")
def strlen(session: Session, args: Args) -> Reply:
    """Return the length in bytes of the string value of a key."""
    value = session.db.string(args[0])
    return 0 if value is None else len(value)


@command("GETRANGE", "SUBSTR")
def getrange(session: Session, args: Args) -> Reply:
    """Return the bytes of a string value between two offsets, both inclusive."""
    start, end = parse_int(args[1]), parse_int(args[2])
    value = session.db.string(args[0])
    if not value or (start < 0 and end < 0 and start > end):
        return b""
    start = max(start + len(value), 0) if start < 0 else start
    end = max(end + len(value), 0) if end < 0 else end
    return bytes(value[start : end + 1])


@command("SETRANGE")
def setrange(session: Session, args: Args) -> Reply:
    """Overwrite part of a string value from an offset and return its new length."""
    key, addition = args[0], args[2]
    offset = parse_int(args[1])
    if offset < 0:
        raise CommandError(errors.OFFSET_OUT_OF_RANGE)
    value = session.db.string(key)
    if not addition:
        return 0 if value is None else len(value)
    check_length(session, offset + len(addition))
    buffer = grow(session, key, value, offset)
    buffer[offset : offset + len(addition)] = addition
    session.db.touch(key)
    return len(buffer)


# -- two values ----------------------------------------------------------------------------------


@command("LCS")
def lcs(session: Session, args: Args) -> Reply:
    """Return the longest common subsequence of two strings, its length, or the ranges it matches."""

    values = [session.db.lookup(key) for key in args[:2]]
    if any(value is not None and not isinstance(value, bytes | bytearray) for value in values):
        raise CommandError(errors.LCS_NOT_STRINGS)
    want_length = want_ranges = with_lengths = False
    minimum = 0
    sizes = {b"IDX": 0, b"LEN": 0, b"WITHMATCHLEN": 0, b"MINMATCHLEN": 1}
    for word, words in options(args, 2, sizes):
        if word == b"IDX":
            want_ranges = True
        elif word == b"LEN":
            want_length = True
        elif word == b"WITHMATCHLEN":
            with_lengths = True
        else:
            minimum = max(0, parse_int(words[0]))
    if want_length and want_ranges:
        raise CommandError(errors.LCS_LEN_AND_IDX)
    lengths = [len(value or b"") + 1 for value in values]
    if lengths[0] * lengths[1] * 4 > session.engine.config.number("proto-max-bulk-len"):
        raise CommandError(errors.LCS_TOO_LONG)
    first, second = (bytes(value or b"") for value in values)
    if want_length:
        return common_length(first, second)
    matches = common_matches(first, second)
    if not want_ranges:
        return b"".join(first[i : i + length] for i, _, length in reversed(matches))
    ranges: list[Reply] = []
    for i, j, length in matches:
        if length >= minimum:
            entry: list[Reply] = [[i, i + length - 1], [j, j + length - 1]]
            ranges.append([*entry, length] if with_lengths else entry)
    total = sum(length for _, _, length in matches)
    return Map([b"matches", ranges, b"len", total])
