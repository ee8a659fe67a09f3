"""Vector commands: an index of vectors under a key, searched by similarity.

Decided here: scores are those of the vendor's vector index (COSINE (1 + cos) / 2, EUCLIDEAN 1 / (1 +
squared distance), DOT (1 + dot) / 2), clamped to 0 to 1. Ids with equal scores are in the order in
which they were added. Every PROFILE is exact. The numbers of a vector must be finite as 32-bit
floats. TYPE returns ``vector``, and DUMP is an error.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections import deque
from typing import TYPE_CHECKING

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, Map, Reply
from ..syntax import parse_float, parse_int
from ..table.registry import Args, command
from ..values.vector_form import MOST_DIMENSIONS

if TYPE_CHECKING:
    from ...similarity.dense import Floats
    from ..values.vectors import VectorValue

# NumPy is imported when a vector command runs: other tests do not need it.

_MOST_RESULTS = 1_000
_PROFILES = (b"FAST", b"BALANCED", b"PRECISE")


@command("VECTOR.CREATE")
def vector_create(session: Session, args: Args) -> Reply:
    """Create a vector index.

    Returns 1 or, with EXISTSOK, 0 if an index with the same dimension and metric exists.
    """
    from ..values.vectors import VectorValue

    key = args[0]
    dimension, metric, exists_ok = _read_definition(deque(args[1:]))
    index = _stored(session, key)
    if index is None:
        session.db.set(key, VectorValue(dimension, metric))
        return 1
    if not exists_ok:
        raise CommandError(errors.index_exists(key))
    if (index.dimension, index.metric) != (dimension, metric):
        raise CommandError(errors.index_differs(key))
    return 0


def _read_definition(words: deque[bytes]) -> tuple[int, str, bool]:
    """Parse ``DIM dimension METRIC metric [EXISTSOK]``, in any order."""
    from ..values.vectors import METRICS

    dimension, metric, exists_ok = 0, "", False
    while words:
        word = words.popleft().upper()
        if word == b"EXISTSOK":
            exists_ok = True
        elif word == b"DIM" and words and not dimension:
            dimension = parse_int(words.popleft(), 1, MOST_DIMENSIONS, errors.VECTOR_DIM)
        elif word == b"METRIC" and words and not metric:
            metric = words.popleft().upper().decode("latin-1")
            if metric not in METRICS:
                raise CommandError(errors.VECTOR_METRIC)
        else:
            raise CommandError(errors.SYNTAX)
    if not dimension or not metric:
        raise CommandError(errors.SYNTAX)
    return dimension, metric, exists_ok


@command("VECTOR.ADD")
def vector_add(session: Session, args: Args) -> Reply:
    """Add a vector or replace the one with the same id; return whether the id is new."""
    key, id = args[:2]
    if not id:
        raise CommandError(errors.VECTOR_ID)
    words = deque(args[2:])
    vector = read_vector(words)
    if words:
        raise CommandError(errors.SYNTAX)
    index = _index(session, key)
    _check_dimension(index, vector)
    is_new = index.put(id, vector)
    session.db.touch(key)
    return int(is_new)


@command("VECTOR.GET")
def vector_get(session: Session, args: Args) -> Reply:
    """Return the numbers of a vector."""
    numbers = _index(session, args[0]).numbers(args[1])
    return NIL_ARRAY if numbers is None else list(numbers)


@command("VECTOR.QUERY")
def vector_query(session: Session, args: Args) -> Reply:
    """Return the ids of the nearest vectors with their scores, best first."""
    count, vector = _read_query(deque(args[1:]))
    index = _index(session, args[0])
    _check_dimension(index, vector)
    return [[id, score] for id, score in index.nearest(vector, count)]


def _read_query(words: deque[bytes]) -> tuple[int, Floats]:
    """Parse ``TOPK count vector [PROFILE profile]``, in any order."""
    count = 0
    vector: Floats | None = None
    while words:
        word = words[0].upper()
        if word in _FORMS and vector is None:
            vector = read_vector(words)
        elif word == b"TOPK" and len(words) > 1 and not count:
            words.popleft()
            count = parse_int(words.popleft(), 1, _MOST_RESULTS, errors.VECTOR_TOPK)
        elif word == b"PROFILE" and len(words) > 1:
            words.popleft()
            if words.popleft().upper() not in _PROFILES:
                raise CommandError(errors.VECTOR_PROFILE)
        else:
            raise CommandError(errors.SYNTAX)
    if not count or vector is None:
        raise CommandError(errors.SYNTAX)
    return count, vector


@command("VECTOR.DEL")
def vector_del(session: Session, args: Args) -> Reply:
    """Remove a vector and return whether it existed; an index without vectors remains."""
    existed = _index(session, args[0]).remove(args[1])
    if existed:
        session.db.touch(args[0])
    return int(existed)


@command("VECTOR.COUNT")
def vector_count(session: Session, args: Args) -> Reply:
    """Return the number of vectors, or 0 if the index does not exist."""
    index = _stored(session, args[0])
    return 0 if index is None else len(index)


@command("VECTOR.INFO")
def vector_info(session: Session, args: Args) -> Reply:
    """Return the dimension and the metric of an index."""
    index = _stored(session, args[0])
    if index is None:
        return None
    return Map([b"dimension", index.dimension, b"metric", index.metric.encode()])


@command("VECTOR.DROP")
def vector_drop(session: Session, args: Args) -> Reply:
    """Remove an index with all its vectors and return whether it existed."""
    if _stored(session, args[0]) is None:
        return 0
    return int(session.db.delete(args[0]))


def _stored(session: Session, key: bytes) -> VectorValue | None:
    from ..values.vectors import VectorValue

    return session.db.get(key, VectorValue)


def _index(session: Session, key: bytes) -> VectorValue:
    index = _stored(session, key)
    if index is None:
        raise CommandError(errors.index_missing(key))
    return index


def _check_dimension(index: VectorValue, vector: Floats) -> None:
    if len(vector) != index.dimension:
        raise CommandError(errors.vector_dimension(index.dimension, len(vector)))


def read_vector(words: deque[bytes]) -> Floats:
    """Consume one of the forms of a vector: ``VALUES``, ``FP32`` or ``BASE64-FP32``."""
    import numpy as np

    word = words.popleft().upper()
    if word not in _FORMS or not words:
        raise CommandError(errors.SYNTAX)
    vector = _FORMS[word](words)
    if not np.isfinite(vector).all():
        raise CommandError(errors.VECTOR_NOT_FINITE)
    return vector


def _from_values(words: deque[bytes]) -> Floats:
    import numpy as np

    count = parse_int(words.popleft(), 1, error=errors.VECTOR_VALUES)
    if count > len(words):
        raise CommandError(errors.VECTOR_VALUES)
    numbers = [parse_float(words.popleft()) for _ in range(count)]
    with np.errstate(over="ignore"):  # The caller rejects numbers beyond the range of float32.
        return np.array(numbers, np.float64).astype(np.float32)


def _from_blob(words: deque[bytes]) -> Floats:
    return _from_bytes(words.popleft())


def _from_base64(words: deque[bytes]) -> Floats:
    try:
        return _from_bytes(a2b_base64(words.popleft(), strict_mode=True))
    except Base64Error:
        raise CommandError(errors.VECTOR_BLOB) from None


def _from_bytes(blob: bytes) -> Floats:
    import numpy as np

    if not blob or len(blob) % 4:
        raise CommandError(errors.VECTOR_BLOB)
    return np.frombuffer(blob, "<f4").astype(np.float32)


_FORMS = {b"VALUES": _from_values, b"FP32": _from_blob, b"BASE64-FP32": _from_base64}
