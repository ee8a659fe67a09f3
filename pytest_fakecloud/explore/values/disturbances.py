"""Disturbances: what happens in a trial that does not happen in the undisturbed one, and their kinds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from ...core.errors import ContractError, shown, unknown_name

Kind: TypeAlias = Literal[
    "jump", "nearly", "past", "tick", "delay", "switch", "rebalance", "redeliver",
    "rotate_token", "hold", "moved", "ask", "partition", "crash", "respond", "drop",
    "lose_response", "failover", "cluster_down", "duplicate",
    "slow", "late", "wake", "crash_after_response", "fail", "unreachable", "numbers",
]  # fmt: skip
"""Kinds of disturbances, which ``KINDS`` describes. Faults have the same names as on the fakes."""
CLOCK = "@clock"
"""The name of a move of the clock in lists of strands. No client can have this name."""
RANDOM = "@random"
"""The strand of a ``numbers`` disturbance, whose point is the number of the series."""
DELAY = 30
"""Length in seconds of the ``delay`` disturbances that the search tries."""
SLOW = (4, 30)
"""Lengths in seconds of the ``slow`` disturbances to try: below and above usual client timeouts."""
HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold`` disturbance."""
PARTITION = 60
"""Length in seconds of the ``partition`` disturbances that the search tries."""
TICKS = {"1ms": 1_000, "1s": 1_000_000, "9999ms": 9_999_000, "59999ms": 59_999_000}
"""Durations in microseconds of the ``tick`` disturbances to try, keyed by the disturbance's detail."""
_WINDOWS = frozenset({"9999ms", "59999ms"})
DUE = "due"
"""The detail of a ``delay`` that ends at the next time that the application keeps as data."""
EDGE = "edge"
"""The detail of a ``jump`` to the next whole second, and of a ``nearly`` that ends just before it."""
JUMPS = 3
"""Number of known times to which ``jump`` disturbances move the clock, from each point."""


class Disturbance(NamedTuple):
    """A disturbance that a schedule injects: the strand, its point, the kind, and a detail.

    Point 1 of a strand is its first call, point 0 its start. A gap between two commands of a pipeline
    is a point, too. What ``detail`` says depends on the kind (``KINDS``): ``runs_first``, ``span_us``,
    ``is_until_due``, ``known_time``, ``is_at_edge``, ``attempts`` or ``status``.
    """

    strand: str
    point: int
    kind: Kind
    detail: str = ""

    @classmethod
    def parse(cls, text: str) -> Disturbance:
        """Parse a disturbance's string; raise ``ContractError`` for any other string."""
        match = _DISTURBANCE.fullmatch(text)
        if match is None:
            raise ContractError(
                f"{shown(text)} is not a disturbance of a schedule: write a client, the number of one "
                "of its calls, and the kind of disturbance, such as 'pay.2 lose_response'"
            )
        kind, detail = match["kind"], match["detail"] or ""
        if kind not in KINDS:
            raise ContractError(unknown_name("kind of disturbance", kind, KINDS))
        pattern, problem, example = KINDS[kind].detail
        if not re.fullmatch(pattern, detail):
            raise ContractError(f"{shown(text)} {problem}: write e.g. '{example.format(kind)}'")
        return cls(match["strand"], int(match["point"]), kind, detail)

    def __str__(self) -> str:
        return f"{self.strand}.{self.point} {self.kind}{f' {self.detail}' * bool(self.detail)}"

    @property
    def point_id(self) -> tuple[str, int]:
        """The strand and the number of the point, as in ``ReachedPoint``."""
        return self.strand, self.point

    @property
    def ends_call(self) -> bool:
        """Whether the disturbance determines the outcome of its call; a call can have one of these."""
        return self.point > 0 and self.kind in ENDS

    @property
    def order(self) -> int:
        return _ORDER[self.kind]

    @property
    def runs_first(self) -> str:
        """The strand that a switch lets run first, or ``CLOCK``; empty for other kinds."""
        return self.detail if self.kind in SWITCHES else ""

    @property
    def span_us(self) -> int:
        """Microseconds of a ``tick``, ``slow``, ``partition``, or ``delay`` unless ``is_until_due``."""
        return TICKS[self.detail] if self.kind == "tick" else int(self.detail) * 1_000_000

    @property
    def is_window(self) -> bool:
        """Whether it is a ``tick`` that ends just within a window of ten seconds or a minute."""
        return self.kind == "tick" and self.detail in _WINDOWS

    @property
    def is_until_due(self) -> bool:
        """Whether it is a ``delay`` until the next time that the application keeps as data."""
        return self.kind == "delay" and self.detail == DUE

    @property
    def known_time(self) -> int:
        """Which of the next known times a ``jump``, ``nearly`` or ``past`` moves to, from 1."""
        return int(self.detail or 1)

    @property
    def is_at_edge(self) -> bool:
        """Whether it is a ``jump`` or ``nearly`` to the next whole second, which is no known time."""
        return self.kind in ("jump", "nearly") and self.detail == EDGE

    @property
    def attempts(self) -> int:
        """How many attempts of a delivery ``fail``, or are ``unreachable``."""
        return int(self.detail or 1)

    @property
    def status(self) -> int:
        """The status of a ``respond``."""
        return int(self.detail or 503)

    def simpler(self) -> Iterator[Disturbance]:
        """Yield disturbances that are easier to explain and have the same effect, or a smaller one."""
        return KINDS[self.kind].simpler(self)


_DISTURBANCE = re.compile(
    r"(?P<strand>[^\s,]+)\.(?P<point>\d+) (?P<kind>\w+)(?: (?P<detail>[^\s,]+))?"
)

# -- what a disturbance is reduced to --------------------------------------------------------------


def _not_simpler(disturbance: Disturbance) -> Iterator[Disturbance]:
    return iter(())


def _next_known_time(disturbance: Disturbance) -> Iterator[Disturbance]:
    if disturbance.kind != "jump" and not disturbance.is_at_edge:
        yield disturbance._replace(kind="jump")
    if disturbance.detail:
        yield disturbance._replace(detail="")


def _delay_of_next_call(disturbance: Disturbance) -> Iterator[Disturbance]:
    yield disturbance._replace(point=disturbance.point + 1, kind="delay")


def _switch_at_next_call(disturbance: Disturbance) -> Iterator[Disturbance]:
    yield disturbance._replace(point=disturbance.point + 1, kind="switch")


def _fewer_attempts(disturbance: Disturbance) -> Iterator[Disturbance]:
    if disturbance.attempts > 1:
        yield disturbance._replace(detail=str(disturbance.attempts - 1))


# -- the table of kinds ----------------------------------------------------------------------------


class Detail(NamedTuple):
    """The details that a kind takes: a regular expression, an error's words, and an example."""

    pattern: str
    problem: str
    example: str


_NO_DETAIL = Detail("", "has a detail, which this kind of disturbance does not take", "pay.2 {}")
_SPAN = Detail(r"\d{1,9}", "has no number of seconds", "pay.2 {} 30")
_STRAND = Detail(".+", "does not name what runs first", "pay.2 {} refund")
_ATTEMPTS = Detail(r"[1-9]\d{0,3}", "has no number of attempts", "delivery1.0 {} 3")
_KNOWN_TIME = Detail(f"[1-{JUMPS}]|", f"has no number of up to {JUMPS} as its time", "pay.2 {} 2")
_KNOWN_TIME_OR_EDGE = Detail(
    f"[1-{JUMPS}]|{EDGE}|",
    f"has neither a number of up to {JUMPS} nor {EDGE!r} as its time",
    "pay.2 {} 2",
)
_SPAN_OR_DUE = Detail(
    rf"\d{{1,9}}|{DUE}", f"has neither a number of seconds nor {DUE!r}", "pay.2 {} 30"
)
_STATUS = Detail(r"[45]\d\d|", "has no status of an error", "pay.2 {} 429")
_TICK = Detail("|".join(TICKS), f"has none of the spans {', '.join(TICKS)}", "pay.2 {} 1ms")

_PAUSE_WORDS = "pauses for {} before its call"

_Trait: TypeAlias = Literal[
    # Where it is applied, and by which class or table. Each kind has one or two of these, except for
    # ``slow``, which ``Pauses`` apply after a call, and ``numbers``, which ``Randomness`` applies to a
    # whole trial.
    "switch",  # where several steps could come next, by ``Decisions``: changes their order
    "pause",  # before a call, or a client's start, by ``Pauses``: pauses a strand, or all of them
    "event",  # before a call is served, by a function in ``call_disturbances.HAPPEN``
    "fault",  # as the call, by one in ``call_disturbances.SERVE``; the first one in ``KINDS`` wins
    "delivery",  # at the start of a delivery, by ``DeliveryStrands``
    # What it does.
    "one strand",  # delays one strand while the others go on
    "loss",  # can keep a client from having an effect
    "repeat",  # lets code run, or a request arrive, a second time
    "lasting",  # begins what a timer ends
    "fake",  # happens in a fake, so its words are a whole sentence
]


_Where: TypeAlias = Literal[
    "everywhere",
    "at the first known time",
    "in readers of the clock",
    "at a write",  # else like a lost request, or a single one
    "after a write",  # else like a crash at the call before
    "after a dependent call",  # else like a switch at the call before
    "at the last call",  # else like a switch at the next call
]


class AtCalls(NamedTuple):
    """Where a kind is possible at calls, and with which details the search tries it there."""

    sort_key: int
    """Sorts the disturbances of a call; the random order of a seed depends on this order."""
    where: Literal["calls", "requests", "waits", "nodes", "broker", "vector_index"] = "calls"
    """At all calls, at those without the Redis protocol or in which a strand may wait, at commands of a
    cluster, or at the calls of a service.
    """
    details: tuple[str, ...] = ("",)


class _Spec(NamedTuple):
    """What a kind of disturbance is, beside the code that applies it."""

    complexity: int
    """How complex an explanation with it is: 1 is the simplest, which the search tries first."""
    traits: tuple[_Trait, ...] = ()
    words: str = ""
    """How the story describes it; the code that applies it fills the gaps."""
    detail: Detail = _NO_DETAIL
    simpler: Callable[[Disturbance], Iterator[Disturbance]] = _not_simpler
    """What a shrinking schedule replaces it by."""
    of_delivery: str = ""
    """How the story describes it behind the destination of a delivery."""
    at_calls: AtCalls | None = None
    tried_first: _Where = "everywhere"
    """Where to try it first: elsewhere, it probably acts as a disturbance that is tried anyway."""


KINDS: dict[Kind, _Spec] = {
    # Before a call. The clock moves to the next known time, to a millisecond before or a second after
    # it, or by a short span.
    "jump": _Spec(
        7, ("pause",), _PAUSE_WORDS, _KNOWN_TIME_OR_EDGE, _next_known_time,
        tried_first="at the first known time"
    ),
    "nearly": _Spec(
        14, ("pause",), _PAUSE_WORDS, _KNOWN_TIME_OR_EDGE, _next_known_time,
        tried_first="at the first known time"
    ),
    "past": _Spec(
        7, ("pause",), _PAUSE_WORDS, _KNOWN_TIME, _next_known_time,
        tried_first="at the first known time"
    ),
    "tick": _Spec(16, ("pause",), _PAUSE_WORDS, _TICK, tried_first="in readers of the clock"),
    # One strand pauses.
    "delay": _Spec(
        13, ("pause", "one strand"), _PAUSE_WORDS, _SPAN_OR_DUE,
        at_calls=AtCalls(9, "waits", (str(DELAY),))
    ),
    # Another strand runs first.
    "switch": _Spec(
        4, ("switch",), "before {} continues", _STRAND, tried_first="after a dependent call"
    ),
    # The members of a consumer group change, or its last commit is lost.
    "rebalance": _Spec(18, ("event", "repeat", "fake"), "{} rebalances", at_calls=AtCalls(1, "broker")),
    "redeliver": _Spec(
        17, ("event", "repeat", "fake"), "the last commit of {} is lost",
        at_calls=AtCalls(2, "broker")
    ),
    # The token of a fake changes, and the code learns it later; changes of an index stay pending.
    "rotate_token": _Spec(
        20, ("event", "loss", "lasting", "fake"),
        "the token of {} is rotated; the code has the new one after {}", at_calls=AtCalls(11)
    ),
    "hold": _Spec(
        19, ("event", "lasting", "fake"), "changes of {} stay pending for {}",
        at_calls=AtCalls(3, "vector_index")
    ),
    # A slot of a cluster moves, or is moving.
    "moved": _Spec(11, ("event", "fake"), "slot {} of {} moves to {}", at_calls=AtCalls(15, "nodes")),
    "ask": _Spec(11, ("event", "fake"), "slot {} of {} is moving to {}", at_calls=AtCalls(16, "nodes")),
    # A client is separated from a fake.
    "partition": _Spec(
        15, ("event", "loss"), "is cut off from {} for {} s", _SPAN,
        at_calls=AtCalls(12, details=(str(PARTITION),))
    ),
    "crash": _Spec(
        2, ("event", "loss", "repeat"), "crashes", at_calls=AtCalls(7), tried_first="after a write"
    ),
    # At a call: faults.
    "respond": _Spec(9, ("fault", "loss"), "is rejected with {}", _STATUS, at_calls=AtCalls(4)),
    "drop": _Spec(8, ("fault", "loss"), "is lost before it arrives", at_calls=AtCalls(5)),
    "lose_response": _Spec(
        3, ("fault", "loss", "repeat"), "succeeds, but its answer is lost",
        at_calls=AtCalls(6), tried_first="at a write"
    ),
    "failover": _Spec(
        10, ("fault",), "is lost, because its node fails and a replica takes over",
        at_calls=AtCalls(13, "nodes")
    ),
    "cluster_down": _Spec(
        12, ("fault",), "is rejected, because the cluster is down",
        at_calls=AtCalls(14, "nodes")
    ),
    "duplicate": _Spec(
        6, ("fault", "delivery", "repeat"), "arrives twice", of_delivery=" twice",
        at_calls=AtCalls(8, "requests"), tried_first="at a write"
    ),
    # After a call: its answer is delayed, or another strand runs before the code receives it.
    "slow": _Spec(
        13, ("one strand",), "receives its answer {} later", _SPAN, _delay_of_next_call,
        at_calls=AtCalls(10, "waits", tuple(map(str, SLOW)))
    ),
    "late": _Spec(
        4, ("switch",), "before {} receives its answer", _STRAND, _switch_at_next_call,
        tried_first="at the last call"
    ),
    # Another strand runs before the code continues after a sleep or a lock.
    "wake": _Spec(4, ("switch",), "before {} continues", _STRAND),
    # At the start of a delivery: the queue loses the answer, the answer and further attempts are lost,
    # or attempts do not reach the destination.
    "crash_after_response": _Spec(
        1, ("delivery", "loss", "repeat"), of_delivery="; the queue loses the answer"
    ),
    "fail": _Spec(
        5, ("delivery", "loss", "repeat"), "", _ATTEMPTS, _fewer_attempts, "; the answer is lost"
    ),
    "unreachable": _Spec(
        5, ("delivery", "loss"), "", _ATTEMPTS, _fewer_attempts, ", which is unreachable"
    ),
    # In a whole trial: other random numbers.
    "numbers": _Spec(21, words="draws other random numbers, of series {}"),
}  # fmt: skip
"""All kinds. Their order says in which order disturbances of one point are applied (``Schedule.at()``),
which of several counts that would determine the outcome of a call (the first one, in ``Schedule``), and
which of several that are equally complex the search tries first (``SIMPLEST_FIRST``).
"""
_ORDER = {kind: at for at, kind in enumerate(KINDS)}
SIMPLEST_FIRST = sorted(KINDS, key=lambda kind: KINDS[kind].complexity)
"""All kinds in the order in which the search tries them, the simplest explanations first."""
RANKS = {kind: number for number, kind in enumerate(SIMPLEST_FIRST)}
"""The position of each kind in that order: no two kinds have the same."""


def with_trait(trait: _Trait) -> frozenset[Kind]:
    """Return the kinds that have a trait."""
    return frozenset(kind for kind, row in KINDS.items() if trait in row.traits)


SWITCHES = with_trait("switch")
"""Kinds that only change the order of steps: of strands, and with ``CLOCK`` of moves of the clock."""
PAUSES = with_trait("pause")
"""Kinds that pause a strand before its call, and all others too if they are not among ``DELAYS``."""
DELAYS = with_trait("one strand")
"""Kinds that delay one strand while the others go on."""
EVENTS = with_trait("event")
"""Kinds that happen before a call is served."""
FAULTS = with_trait("fault")
"""Faults that determine a call's outcome."""
ENDS: frozenset[Kind] = FAULTS | {"crash"}
"""All kinds that determine a call's outcome."""
ONLY_TIMING = SWITCHES | PAUSES | DELAYS
"""Kinds that only change when strands run."""
