"""Footprints: the data of the fakes that steps, commands, requests and deliveries access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..kv.table.kinds import CLAIMS
from ..reporting.calls import PUBLISHING

if TYPE_CHECKING:
    from ..cloud.fake import Fake
    from ..http.messages import Request
    from ..queue.model import Message


ALL = "*"
"""The name of an access to everything of a kind."""
KEY_OF_DB = "key of db"
"""The kind of accesses to keys, without the number of the database."""


class Touch(NamedTuple):
    """An access to a key, message, group or the like in a fake; ``writes`` tells writes from reads."""

    fake: str
    kind: str
    name: str
    writes: bool

    @property
    def read(self) -> Touch:
        """A read of the same data, which stands for the data itself."""
        return Touch(self.fake, self.kind, self.name, False)

    def conflicts(self, other: Touch) -> bool:
        return (
            (self.writes or other.writes)
            and self.fake == other.fake
            and self.kind == other.kind
            and (self.name == other.name or ALL in (self.name, other.name))
        )

    def __str__(self) -> str:
        kind = self.kind.removesuffix(" of db0")
        return f"{kind} {self.name}" if self.name != ALL else f"all {kind}s"


MEMORY = Touch("", "memory", ALL, True)
"""An access to the process's memory, which code between two calls may read and write."""
READS_CLOCK = Touch("", "clock", ALL, False)
"""A read of the clock, for a step whose effect depends on the time."""
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

_PATTERNS = frozenset(("PSUBSCRIBE", "PUNSUBSCRIBE"))
"""Commands whose arguments match several channels."""
_WITHOUT_DATA = frozenset(("TIME", "LOLWUT"))
"""Commands of servers that access neither data nor settings."""
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
    options: frozenset[str]
    """The words after its value, in upper case."""
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
    claims = None
    # The fourth argument is a minimum idle time; for XPENDING, only after IDLE.
    has_idle_time = spec.name in CLAIMS and len(argv) > 4 and argv[4].isdigit()
    if has_idle_time and (spec.name != "XPENDING" or argv[3].upper() == b"IDLE"):
        claims = argv[1], argv[2], int(argv[4])
    words = (spec.name, *map(text_of, argv[len(spec.name.split()) :]))
    return CommandLine(
        words,
        touches,
        tuple(touch.read for touch in of_keys),
        tuple(map(key_of_touch, of_keys)),
        any(touch.writes for touch in of_keys),
        times_in(b" ".join(argv[1:])),
        # In some commands the options are directly after the key; in others, there is a value first.
        frozenset(map(str.upper, words[2 if spec.leading_options else 3 :])),
        claims,
    )


def touches_of_command(
    fake: str, database: int, databases: int, spec: Any, argv: Sequence[bytes]
) -> Iterable[Touch]:
    """Yield the accesses of a command, based on the keys and flags in the command table."""
    if spec.depends_on_time(argv):
        yield READS_CLOCK
    if spec.group == "pubsub" and spec.container is None:
        publishes = spec.arity > 0
        for channel in argv[1:2] if publishes else argv[1:]:
            yield Touch(fake, "channel", ALL if spec.name in _PATTERNS else text_of(channel), True)
        return
    # The commands in scripts and transactions are recorded when they run.
    is_script = "no_mandatory_keys" in spec.flags
    is_transaction = spec.group == "transactions" and not spec.keys
    acts_on_connection = "@connection" in spec.categories
    if is_script or is_transaction or acts_on_connection or spec.name in _WITHOUT_DATA:
        return
    touches: list[Touch] = []
    for key_spec in spec.keys:
        places = key_spec.positions(argv)
        if places is None:
            touches.append(Touch(fake, f"{KEY_OF_DB}{database}", ALL, bool(spec.write)))
        for place in places or ():
            touches.append(touch_of_key(fake, database, argv[place], "RO" not in key_spec.flags))
    name = spec.name.partition(" ")[0]
    if touches or (spec.keys and not spec.write):
        yield from touches
    elif spec.write or spec.readonly or name in ("INFO", "DEBUG", "SWAPDB", "MEMORY"):
        for index in range(databases):
            yield Touch(fake, f"{KEY_OF_DB}{index}", ALL, bool(spec.write))
    else:
        yield Touch(fake, "setting", ALL, spec.name != "CONFIG GET")


def touch_of_key(fake: str, database: int, key: bytes, writes: bool) -> Touch:
    return Touch(fake, f"{KEY_OF_DB}{database}", text_of(key), writes)


def key_of_touch(touch: Touch) -> bytes:
    """Return the key that ``touch_of_key()`` named; a key that is not UTF-8 is not found again."""
    return touch.name.encode()


def text_of(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


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


# -- the other services ----------------------------------------------------------------------------

_READS = frozenset({"GET", "HEAD"})
_BROKER: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "produce": (("topic", "topic", True),),
    "fetch": (("topic", ALL, False),),
    "consume": (("topic", ALL, False), ("group", "group", True)),
    "commit": (("group", "group", True),),
    "committed": (("group", "group", False),),
    "offsets": (("topic", ALL, False),),
    "topics": (("topic", ALL, False),),
    "consumers": (("group", ALL, False),),
    "delete-consumer": (("group", "group", True),),
}
"""The accesses of each route: the kind, the parameter with the name, and whether they write."""
_WHOLE_INDEX = ("info", "list-namespaces", "rename-namespace", "reset")
"""Routes that can affect all namespaces."""
_VECTOR_READS = ("query", "fetch", "range", "random", "info", "list", "resumable")


def touches_of_request(fake: Fake, request: Request) -> Sequence[Touch]:
    """Return the accesses of a request, based on its route; an unknown one writes everything."""
    fixture, owner = fake.fixture, fake.name
    if fixture == "kv_server" and hasattr(fake._engine, "run"):
        return ()  # The engine reports its commands.
    route, params = request.route, request.params
    touches = [READS_CLOCK]
    if fixture == "broker":
        for kind, name, writes in _BROKER.get(route, (("topic", ALL, True), ("group", ALL, True))):
            value = ALL if name == ALL else params.get(name, ALL)
            touches.append(Touch(owner, kind, value, writes))
    elif fixture == "vector_index":
        namespace = params.get("namespace", "")
        reads = route.startswith(_VECTOR_READS)
        whole = route in _WHOLE_INDEX or route.startswith("resumable")
        name = ALL if whole else namespace or "default"
        touches.append(Touch(owner, "namespace", name, not reads))
        if route.startswith("resumable"):
            touches.append(Touch(owner, "cursor", ALL, True))
    elif fixture == "queue":
        reads = request.method in _READS
        touches.append(Touch(owner, "publishing", ALL, not reads))
        if route not in PUBLISHING:
            touches.append(Touch(owner, "message", ALL, not reads))
    else:
        touches.append(Touch(owner, "data", ALL, request.method not in _READS))
    return touches


def touches_of_delivery(fake: str, name: str, message: Message) -> Iterable[Touch]:
    """Yield the accesses of the start or the end of a delivery, which others may wait for."""
    yield READS_CLOCK
    yield Touch(fake, "message", name, True)
    if message.queue_name is not None:
        yield Touch(fake, "queue", message.queue_name, True)
    flow = message.settings.flow
    if flow is not None:
        yield Touch(fake, "flow-control key", flow.key, True)
