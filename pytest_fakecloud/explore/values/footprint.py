"""Footprints: the data of the fakes that steps, commands, requests and deliveries access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...cloud.services import SERVICES, imported
from ...core.touches import ALL, READS_CLOCK, Touch
from ...kv.touches import KEY_OF_DB, key_of_touch, text_of, touches_of_command

if TYPE_CHECKING:
    from ...cloud.fake import Fake
    from ...http.messages import Request
    from ...kv.table.synopsis import BoundLine


MEMORY = Touch("", "memory", ALL, True)
"""An access to the process's memory, which code between two calls may read and write."""
MOVES_CLOCK = Touch("", "clock", ALL, True)
"""A move of the clock."""
CHECKS_PROMISE = Touch("", "promise", ALL, True)
"""A check after a step, whose result depends on the order of all writes."""


class Footprint:
    """All accesses of one step. If ``is_everything`` is set, the step conflicts with every step."""

    __slots__ = ("is_everything", "touches")

    def __init__(self, touches: Iterable[Touch] = ()) -> None:
        self.touches: dict[Touch, None] = dict.fromkeys(touches)
        self.is_everything = False

    def add(self, touch: Touch) -> None:
        self.touches[touch] = None

    def depends_on(self, other: Footprint) -> bool:
        """Return whether the order of the two steps may matter."""
        if self.is_everything or other.is_everything:
            return True
        for touch in self.touches:
            for another in other.touches:
                if touch.conflicts(another):
                    return True
        return False


# -- the key-value server --------------------------------------------------------------------------

_WITHOUT_VALUES = frozenset(("WATCH", "EXEC"))
"""Commands that read no values: what WATCH guards never runs if the key has changed."""


class CommandLine(NamedTuple):
    """A command line, and all that follows from its words alone."""

    words: tuple[str, ...]
    """The name in upper case, and the arguments."""
    touches: tuple[Touch, ...]
    keys: tuple[Touch, ...]
    """The keys whose values it reads or changes, as reads."""
    key_names: tuple[bytes, ...]
    writes: bool
    """Whether it changes one of the keys."""
    times_us: tuple[int, ...]
    """The times that its arguments contain."""
    bound: BoundLine
    """The arguments with their names."""
    claims: tuple[bytes, bytes, int] | None
    """The stream, the group and the minimum idle time in milliseconds, if it claims or lists entries."""


def command_line(
    fake: str, database: int, databases: int, spec: Any, argv: tuple[bytes, ...]
) -> CommandLine:
    """Analyse a command line that a database of a fake with so many databases runs."""
    touches = tuple(touches_of_command(fake, database, databases, spec, argv))
    of_keys = [touch for touch in touches if touch.kind.startswith(KEY_OF_DB)]
    if spec.name in _WITHOUT_VALUES:
        of_keys = []
    bound = spec.bound(tuple(map(text_of, argv)))
    claims = None
    for idle_time in bound.with_role("idle time"):
        if idle_time.isdecimal():
            claims = argv[1], argv[2], int(idle_time)
    return CommandLine(
        (spec.name, *bound.words),
        touches,
        tuple(touch.read for touch in of_keys),
        tuple(map(key_of_touch, of_keys)),
        any(touch.writes for touch in of_keys),
        times_in(b" ".join(argv[1:])),
        bound,
        claims,
    )


_TIMESTAMP = re.compile(rb"(?<![\d.])(\d{10})(\d{3})?(\.\d+)?(?!\d)")
"""A time since the Unix epoch: seconds, milliseconds, or either with a fraction."""


def times_in(data: bytes) -> tuple[int, ...]:
    """Return the times that a request contains, in microseconds."""
    times = []
    for match in _TIMESTAMP.finditer(data):
        whole, milliseconds, fraction = match.groups()
        at_us = int(whole) * 1_000_000 + int(milliseconds or 0) * 1_000
        times.append(at_us + int(float(fraction or 0) * (1_000 if milliseconds else 1_000_000)))
    return tuple(times)


# -- requests -------------------------------------------------------------------------------------


def touches_of_request(fake: Fake, request: Request) -> Sequence[Touch]:
    """Return the accesses of a request; one to another package's fake accesses all of its data."""
    service = SERVICES.get(fake.fixture)
    if service is not None and service.touches:
        touches: Sequence[Touch] | None = imported(service.touches)(fake, request)
        if touches is not None:
            return touches
    return [READS_CLOCK, Touch(fake.name, "data", ALL, request.method not in ("GET", "HEAD"))]
