"""HyperLogLog commands, which estimate the number of distinct elements added to a string."""

from __future__ import annotations

from .. import errors
from ..algorithms import hyperloglog as hll
from ..algorithms.hyperloglog import estimate
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import OK, Reply, Status
from ..table.registry import Args, command


def _find(session: Session, key: bytes) -> bytes | None:
    value = session.db.string(key)
    if value is None:
        return None
    # Copy the value only if it can be a HyperLogLog, because another string may be large.
    copy = bytes(value) if value[:4] == hll.MAGIC else b""
    if not hll.is_hyperloglog(copy):
        raise CommandError(errors.NOT_HYPERLOGLOG)
    return copy


def _keep(session: Session, key: bytes, value: bytes) -> None:
    # Store a bytearray, because OBJECT ENCODING reports `raw` for a string that was changed in
    # place.
    session.db.set(key, bytearray(value), keep_ttl=True)


@command("PFADD")
def pfadd(session: Session, args: Args) -> Reply:
    """Add elements to a HyperLogLog and return whether its registers changed."""
    value = _find(session, args[0])
    limit = session.engine.config.number("hll-sparse-max-bytes")
    grown, changed = hll.add(value or hll.new_sparse(), args[1:], limit)
    if value is None and not changed:
        # Creating a HyperLogLog counts as a change.
        grown, changed = hll.mark_stale(grown), True
    if changed:
        _keep(session, args[0], grown)
    return int(changed)


@command("PFCOUNT")
def pfcount(session: Session, args: Args) -> Reply:
    """Return the estimated number of distinct elements in the union of HyperLogLogs."""
    if len(args) > 1:
        values = [value for key in args if (value := _find(session, key)) is not None]
        return estimate(hll.register_maxima(values))
    value = _find(session, args[0])
    if value is None:
        return 0
    cardinality, cached = hll.cached_count(value)
    if cached is not value:
        _keep(session, args[0], cached)
    return cardinality


@command("PFMERGE")
def pfmerge(session: Session, args: Args) -> Reply:
    """Merge HyperLogLogs into one key."""
    found = [_find(session, key) for key in args]
    values = [value for value in found if value is not None]
    target = found[0] or hll.new_sparse()
    limit = session.engine.config.number("hll-sparse-max-bytes")
    dense = any(map(hll.is_dense, values))
    merged = hll.merge(target, hll.register_maxima(values), dense, limit)
    _keep(session, args[0], merged)
    return OK


@command("PFDEBUG")
def pfdebug(session: Session, args: Args) -> Reply:
    """Inspect a HyperLogLog's representation with GETREG, DECODE, ENCODING, or TODENSE."""
    word, key = args[0].upper(), args[1]
    value = _find(session, key)
    if value is None:
        raise CommandError(errors.PFDEBUG_NO_KEY)
    if word == b"GETREG":
        # Like Redis, convert the value itself to the dense representation.
        _keep(session, key, hll.to_dense(value))
        return list(hll.registers(value))
    if word == b"DECODE":
        if hll.is_dense(value):
            raise CommandError(errors.PFDEBUG_NOT_SPARSE)
        return hll.describe(value).encode()
    if word == b"ENCODING":
        return Status(b"dense" if hll.is_dense(value) else b"sparse")
    if word == b"TODENSE":
        if hll.is_dense(value):
            return 0
        _keep(session, key, hll.to_dense(value))
        return 1
    raise CommandError(errors.pfdebug_unknown(args[0]))


@command("PFSELFTEST")
def pfselftest(session: Session, args: Args) -> Reply:
    """Test the implementation; has no effect, because the tests of the fake do that."""
    return OK
