"""Set commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import Reply, SetReply
from ..syntax import I64_MAX, parse_int
from ..table.registry import Args, command, variant
from ..values.containers import SetValue
from .arguments import (
    get_or_empty,
    parse_negatable,
    parse_options,
    parse_pop,
    random_indexes,
    remove_all,
    scan_collection,
)
from .hyperloglog import estimated_size


@command("SCARD")
def scard(session: Session, args: Args) -> Reply:
    """Return the number of members in a set."""
    return len(get_or_empty(session, args[0], SetValue))


@command("SSCAN")
def sscan(session: Session, args: Args) -> Reply:
    """Iterate over the members of a set."""
    return scan_collection(session, args, kind=SetValue)


@command("SADD")
def sadd(session: Session, args: Args) -> Reply:
    """Add members to a set and return the number that were added."""
    members = session.db.get_or_create(args[0], SetValue)
    added = sum(map(members.add, args[1:]))
    if added:
        session.db.touch(args[0])
    return added


@command("SREM")
def srem(session: Session, args: Args) -> Reply:
    """Remove members from a set and return the number that were removed."""
    return remove_all(session, args, kind=SetValue)


@command("SMOVE")
def smove(session: Session, args: Args) -> Reply:
    """Move a member from one set to another."""
    source, target, member = args
    db = session.db
    members = db.get(source, SetValue)
    if members is None:
        return 0
    receiving = db.get(target, SetValue)
    if members is receiving:
        return int(member in members)
    if not members.remove(member):
        return 0
    db.note_removal(source, "srem")
    if db.get_or_create(target, SetValue).add(member):
        db.touch(target, "sadd")
    return 1


@command("SISMEMBER")
def sismember(session: Session, args: Args) -> Reply:
    """Return whether a set contains a member."""
    return int(args[1] in get_or_empty(session, args[0], SetValue))


@command("SMISMEMBER")
def smismember(session: Session, args: Args) -> Reply:
    """Return for each member whether the set contains it."""
    members = get_or_empty(session, args[0], SetValue)
    return [int(member in members) for member in args[1:]]


@command("SMEMBERS")
def smembers(session: Session, args: Args) -> Reply:
    """Return all members of a set."""
    return SetReply(get_or_empty(session, args[0], SetValue))


@command("SPOP")
def spop(session: Session, args: Args) -> Reply:
    """Remove and return one or more random members of a set."""
    count = parse_pop(args)
    members = session.db.get(args[0], SetValue)
    if members is None or count == 0:
        return None if count is None else SetReply()
    if count is not None and count >= len(members):
        # Real servers compute a union to return a whole set, which counts as a read.
        session.db.hits += 1
    random = session.engine.random
    popped = []
    for _ in range(min(count or 1, len(members))):
        member = members.at(random.randrange(len(members)))
        members.remove(member)
        popped.append(member)
    session.db.note_removal(args[0])
    return popped[0] if count is None else SetReply(popped)


@command("SRANDMEMBER")
def srandmember(session: Session, args: Args) -> Reply:
    """Return one or more random members of a set; a negative count allows repetitions."""
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    count = None if len(args) == 1 else parse_negatable(args[1])
    members = session.db.get(args[0], SetValue)
    if members is None:
        return None if count is None else []
    if count is None:
        return members.at(session.engine.random.randrange(len(members)))
    if count >= len(members):
        return list(members)
    return [members.at(index) for index in random_indexes(session, len(members), count)]


def _sets(session: Session, keys: list[bytes]) -> list[SetValue]:
    return [get_or_empty(session, key, SetValue) for key in keys]


def _intersection(session: Session, keys: list[bytes]) -> Iterator[bytes]:
    smallest, *others = sorted(_sets(session, keys), key=len)
    return (member for member in smallest if all(member in other for other in others))


def _union(session: Session, keys: list[bytes]) -> SetValue:
    sets = _sets(session, keys)
    return SetValue(chain.from_iterable(sets))


def _difference(session: Session, keys: list[bytes]) -> Iterator[bytes]:
    first, *others = _sets(session, keys)
    return (member for member in first if not any(member in other for other in others))


_Combination = Callable[[Session, list[bytes]], Iterable[bytes]]


@variant("SINTER", "Return the intersection of sets.")
@variant("SUNION", "Return the union of sets.", combine=_union)
@variant(
    "SDIFF",
    "Return the members of the first set that are in none of the other sets.",
    combine=_difference,
)
@variant("SINTERSTORE", "Store the intersection of sets in a key and return its size.")
@variant("SUNIONSTORE", "Store the union of sets in a key and return its size.", combine=_union)
@variant(
    "SDIFFSTORE",
    "Store the members of the first set that are in no other set, and return their number.",
    combine=_difference,
)
def sinter(session: Session, args: Args, *, combine: _Combination = _intersection) -> Reply:
    if session.command.readonly:
        return SetReply(combine(session, args))
    return session.db.store(args[0], SetValue(combine(session, args[1:])))


@variant(
    "SINTERCARD", "Return the size of the intersection of sets, counting up to an optional limit."
)
@variant(
    "SUNIONCARD",
    "Return the exact or estimated size of the union of sets, counting up to an optional limit.",
    combine=_union,
)
@variant(
    "SDIFFCARD",
    "Return the number of members of the first set that are in none of the other sets.",
    combine=_difference,
)
def sintercard(session: Session, args: Args, *, combine: _Combination = _intersection) -> Reply:
    numkeys = parse_int(args[0], 1, I64_MAX, errors.NUMKEYS_NOT_POSITIVE)
    if numkeys > len(args) - 1:
        raise CommandError(errors.TOO_MANY_KEYS)
    limit, is_estimate = 0, False
    for word, values in parse_options(args, 1 + numkeys, session.command.option_sizes):
        if word == b"APPROX":
            is_estimate = True
        else:
            limit = parse_int(values[0], 0, I64_MAX, errors.LIMIT_NEGATIVE)
    members = combine(session, args[1 : 1 + numkeys])
    if is_estimate:
        return min(estimated_size(members), limit or I64_MAX)
    return sum(1 for _ in islice(members, limit or None))
