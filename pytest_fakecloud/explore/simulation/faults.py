"""Disturbances of calls: which are possible at a call, and what each of them does."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...cloud.fake import Fake, core_of
from ...core.errors import ContractError, Crash, ServiceError, listed
from ...faults.answers import lost
from ...faults.plan import injector_of
from ...http.messages import Answer, AnyResponse, ConnectionEffect, Proceed, Request
from ...kv.errors import CLUSTER_DOWN
from ...kv.faults import happen_to_nodes, possible_faults, served_slot, target_of
from ..disturbances import DELAY, FAULTS, HOLD_US, KINDS, PARTITION, SLOW, Disturbance, Kind
from ..fakes import ROTATED_US
from ..trial import Choices, Line
from .log import TrialLog, seconds
from .script import Script
from .strand import Strand

if TYPE_CHECKING:
    from ...kv.engine.replication import Node
    from ...kv.engine.sessions import Session


class Faults:
    """Applies the disturbances of calls in a trial."""

    def __init__(self, script: Script, log: TrialLog) -> None:
        self._fakes = script.fakes
        self._log = log
        self._partitions: dict[tuple[str, str], tuple[int, Disturbance]] = {}
        """The end of each partition between a root strand and a fake, by title and name."""

    def partition(self, strand: Strand, fake: Fake) -> Disturbance | None:
        """Return the partition that keeps a strand's calls from a fake now, if there is one."""
        key = strand.root.title, fake.name
        until_us, disturbance = self._partitions.get(key, (0, None))
        return disturbance if until_us > self._fakes.now_us() else None

    def begin_partition(self, strand: Strand, disturbance: Disturbance, fake: Fake) -> int:
        """Keep a root strand's calls from a fake; return for how many seconds."""
        span = int(disturbance.detail or PARTITION)
        until_us = self._fakes.now_us() + span * 1_000_000
        self._partitions[strand.root.title, fake.name] = until_us, disturbance
        return span

    def apply(
        self, disturbances: Sequence[Disturbance], strand: Strand, fake: Fake, request: Request
    ) -> Disturbance | None:
        """Apply the disturbances before a call, and return the fault of the call, if any."""
        fault = None
        for disturbance in disturbances:
            kind = disturbance.kind
            target = Target(fake.fixture, request.call.route, faults_of_nodes(fake, request))
            if kind not in CALL_KINDS or not CALL_KINDS[kind].is_possible(target):
                continue
            if kind in FAULTS:
                fault = disturbance
            elif not self._apply_before(strand, disturbance, fake, request):
                continue
            self._log.fired.append(disturbance)
            if strand.root.crashed:
                raise Crash
        return fault

    def _apply_before(
        self, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
    ) -> bool:
        """Apply a disturbance that precedes a call; return whether it was possible."""
        happen = CALL_KINDS[disturbance.kind].happen
        gaps = None if happen is None else happen(self, strand, disturbance, fake, request)
        if gaps is None:
            return False
        text = KINDS[disturbance.kind].words.format(*gaps)
        self._log.add_line(strand.name, text, disturbances=[disturbance])
        return True

    def rotate_token(self, fake: Fake) -> None:
        self._fakes.disturbances.rotate(fake)

    def hold(self, fake: Any) -> None:
        self._fakes.disturbances.hold(fake)

    def serve(
        self, fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
    ) -> AnyResponse:
        """Serve a call with its fault, and describe the fault in the call's line."""
        serve = CALL_KINDS[fault.kind].serve
        assert serve is not None, f"{fault.kind} is a fault that nothing serves"
        words = KINDS[fault.kind].words
        line.disturbances, line.words = (fault,), words.format(_status_of(fault))
        request.call.faults = ({"kind": fault.kind, "description": fault.kind},)
        return serve(fault, fake, request, proceed, line)


# -- what happens before a call ----------------------------------------------------------------------

_Gaps: TypeAlias = tuple[object, ...]
"""What fills the gaps in the words of a kind."""


def _crash(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
) -> _Gaps:
    strand.root.crashed = strand.crashed = True
    return ()


def _rotate_token(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
) -> _Gaps:
    faults.rotate_token(fake)
    return fake.name, seconds(ROTATED_US)


def _hold(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
) -> _Gaps:
    faults.hold(fake)
    return fake.name, seconds(HOLD_US)


def _partition(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
) -> _Gaps:
    return fake.name, faults.begin_partition(strand, disturbance, fake)


def _disturb_group(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Any, request: Request
) -> _Gaps | None:
    """Disturb the consumer group of a call; return None if the call has none that can be disturbed."""
    group = request.params.get("group")
    if not group:
        return None
    try:
        consumer_group = fake.group(group)
        if disturbance.kind == "redeliver":
            return (group,) if fake.faults.redeliver(group) else None
    except ContractError:
        return None  # No consumer has joined the group yet, or there have been no deliveries.
    consumer_group.rebalance()
    return (group,)


def _move_slot(
    faults: Faults, strand: Strand, disturbance: Disturbance, fake: Fake, request: Request
) -> _Gaps:
    slot, target = _disturb_nodes(disturbance.kind, session_of(fake, request), request)
    return slot, fake.name, target.address


# -- how a call with a fault is served ---------------------------------------------------------------


def _drop(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    return ConnectionEffect("drop")


def _respond(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    session = session_of(fake, request)
    if session is not None:
        return _loading(session)
    status = _status_of(fault)
    error = ServiceError(status, HTTPStatus(status).phrase)
    return injector_of(fake.faults).answers.render(error)


def _lose_response(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    return lost(proceed())


def _duplicate(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    response = proceed()
    if request.call.route == "consume":
        line.words += _lost_records(response)
    return proceed()


def _failover(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    _disturb_nodes(fault.kind, session_of(fake, request), request)
    return ConnectionEffect("drop", reset=True)


def _cluster_down(
    fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
) -> AnyResponse:
    _disturb_nodes(fault.kind, session_of(fake, request), request)
    return Answer(CLUSTER_DOWN, 400, (), "text/plain")  # The port makes a reply of it.


def _status_of(fault: Disturbance) -> int:
    return int(fault.detail or 503) if fault.kind == "respond" else 503


# -- the table of the kinds of calls -----------------------------------------------------------------


class Target(NamedTuple):
    """A call, as far as it determines which disturbances are possible."""

    fixture: str
    route: str
    """Empty for a call that has not been sent yet."""
    node_faults: tuple[Kind, ...] = ()
    """The faults of nodes that are possible at the command."""
    may_wait: bool = True


class CallKind(NamedTuple):
    """Where a kind of disturbance of calls is possible, and what it does there.

    ``pauses`` applies a kind with neither function.
    """

    is_possible: Callable[[Target], bool]
    happen: Callable[[Faults, Strand, Disturbance, Fake, Request], _Gaps | None] | None = None
    """Applies it before the call, and returns what fills the gaps in its words; None if it was not
    possible.
    """
    serve: Callable[[Disturbance, Fake, Request, Proceed, Line], AnyResponse] | None = None
    """Serves the call with this fault."""
    details: tuple[str, ...] = ("",)
    """The details that the search tries."""


def _everywhere(target: Target) -> bool:
    return True


def _at_requests(target: Target) -> bool:
    return target.route != "database-port"


def _at_waits(target: Target) -> bool:
    return target.may_wait


def _of_broker(target: Target) -> bool:
    return target.fixture == "broker"


def _of_index(target: Target) -> bool:
    return target.fixture == "vector_index"


def _of_nodes(kind: Kind) -> Callable[[Target], bool]:
    return lambda target: kind in target.node_faults


CALL_KINDS: dict[Kind, CallKind] = {
    "rebalance": CallKind(_of_broker, _disturb_group),
    "redeliver": CallKind(_of_broker, _disturb_group),
    "hold": CallKind(_of_index, _hold),
    "respond": CallKind(_everywhere, serve=_respond),
    "drop": CallKind(_everywhere, serve=_drop),
    "lose_response": CallKind(_everywhere, serve=_lose_response),
    "crash": CallKind(_everywhere, _crash),
    "duplicate": CallKind(_at_requests, serve=_duplicate),
    "delay": CallKind(_at_waits, details=(str(DELAY),)),
    "slow": CallKind(_at_waits, details=tuple(map(str, SLOW))),
    "rotate_token": CallKind(_everywhere, _rotate_token),
    "partition": CallKind(_everywhere, _partition, details=(str(PARTITION),)),
    "failover": CallKind(_of_nodes("failover"), serve=_failover),
    "cluster_down": CallKind(_of_nodes("cluster_down"), serve=_cluster_down),
    "moved": CallKind(_of_nodes("moved"), _move_slot),
    "ask": CallKind(_of_nodes("ask"), _move_slot),
}
"""The disturbances of calls, in the order in which a point lists them."""


@functools.cache
def possible_disturbances(target: Target) -> Choices:
    """Return the disturbances of a call, without pauses of all strands."""
    return tuple(
        (kind, detail)
        for kind, call_kind in CALL_KINDS.items()
        if call_kind.is_possible(target)
        for detail in call_kind.details
    )


def faults_of_nodes(fake: Any, request: Request) -> tuple[Kind, ...]:
    """Return the faults of nodes that are possible at a command of a cluster."""
    if fake.fixture != "kv_server" or core_of(fake).app.node_faults is None:
        return ()
    session = session_of(fake, request)
    return () if session is None else possible_faults(session, _line_of(request))


def _disturb_nodes(kind: Any, session: Any, request: Request) -> tuple[int, Node]:
    """Let a fault happen to nodes that is possible at a command; return its slot and its node."""
    line = _line_of(request)
    slot, target = served_slot(session, line), target_of(kind, session)
    assert slot is not None
    happen_to_nodes(kind, session, line, slot, target)
    return slot, target


def _line_of(request: Request) -> list[bytes]:
    return [word.encode("utf-8", "surrogatepass") for word in json.loads(request.body)]


def _loading(session: Session) -> Answer:
    """Return a server's answer while it loads its data; an open transaction is discarded."""
    text = "LOADING Redis is loading the dataset in memory"
    if session.transaction is not None:
        session.discard_transaction()
        text = f"EXECABORT Transaction discarded because of: {text}"
    return Answer(text.encode(), 400, (), "text/plain")  # The port makes an error reply of it.


def _lost_records(answer: AnyResponse) -> str:
    """Describe the records of the first answer to a consume request that arrives twice."""
    if not isinstance(answer, Answer) or answer.status != 200 or not isinstance(answer.body, bytes):
        return ""
    records = json.loads(answer.body)
    places = [f"{record['topic']}-{record['partition']}@{record['offset']}" for record in records]
    return f", and the first answer with {listed(places)} is lost" if places else ""


def session_of(fake: Any, request: Request) -> Session | None:
    """Return the session of a command's connection, or None for an HTTP request."""
    if request.call.route != "database-port":
        return None
    clients = [*core_of(fake).app.clients]
    return next((client.session for client in clients if client.client == request.client), None)
