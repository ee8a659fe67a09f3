"""Random members of collections: SRANDMEMBER, HRANDFIELD and ZRANDMEMBER."""

from __future__ import annotations

from collections.abc import Sequence

from .. import errors
from ..engine.engine import Session
from ..errors import CommandError

MOST_REPETITIONS = 1_000_000
"""Maximum number of random members that a negative count may request (decided here)."""


def random_indexes(session: Session, size: int, count: int) -> Sequence[int]:
    """Return random indexes below ``size``: distinct ones, or repeated ones for a negative count."""
    random = session.engine.random
    if count < -MOST_REPETITIONS:
        raise CommandError(errors.OUT_OF_RANGE)
    if count < 0:
        return [random.randrange(size) for _ in range(-count)]
    return range(size) if count >= size else random.sample(range(size), count)
