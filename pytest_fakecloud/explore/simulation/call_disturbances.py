"""Disturbances of calls: which are possible at a call, and what its events and faults do."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...cloud.fake import Fake, core_of
from ...core.errors import ContractError, ServiceError, listed
from ...faults.answers import lost
from ...faults.plan import injector_of
from ...http.messages import Answer, AnyResponse, ConnectionEffect, Proceed, Request
from ...kv.errors import CLUSTER_DOWN
from ...kv.faults import happen_to_nodes, possible_faults, served_slot, target_of
from ..fakes.fakes import Fakes
from ..fakes.lasting_events import ROTATED_US
from ..values.disturbances import EVENTS, FAULTS, HOLD_US, KINDS, Disturbance, Kind
from ..values.trial import Choices, Line
from .log import span_text
from .part import Common, Part
from .strand import Strand

if TYPE_CHECKING:
    from ...kv.engine.replication import Node
    from ...kv.engine.sessions import Session


_Gaps: TypeAlias = tuple[object, ...]
"""What fills the gaps in the words of a kind."""


class _Event(NamedTuple):
    """An event before a call."""

    fakes: Fakes
    partitions: dict[tuple[str, str], tuple[int, Disturbance]]
    """The end of each partition between a root strand and a fake, by their names."""
    strand: Strand
    disturbance: Disturbance
    fake: Any
    request: Request


class _FaultyCall(NamedTuple):
    """A call with a fault, and its line in the story."""

    fault: Disturbance
    fake: Any
    request: Request
    proceed: Proceed
    line: Line


_Happen: TypeAlias = Callable[[_Event], _Gaps | None]
"""Applies an event, and returns what fills the gaps in its kind's words; None if it was impossible."""
_Serve: TypeAlias = Callable[[_FaultyCall], AnyResponse]


class CallDisturbances(Part):
    """Applies the events and faults of calls in a trial."""

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._partitions: dict[tuple[str, str], tuple[int, Disturbance]] = {}

    def partition(self, strand: Strand, fake: Fake) -> Disturbance | None:
        """Return the partition that keeps a strand's calls from a fake now, if there is one."""
        key = strand.root.name, fake.name
        until_us, disturbance = self._partitions.get(key, (0, None))
        return disturbance if until_us > self._fakes.now_us() else None

    def apply(
        self, disturbances: Sequence[Disturbance], strand: Strand, fake: Fake, request: Request
    ) -> Disturbance | None:
        """Apply the events before a call, and record and return its fault, if any. Raises ``Crash`` if
        one of them ends the client.
        """
        fault = None
        for disturbance in disturbances:
            target = Target(fake.fixture, request.call.route, faults_of_nodes(fake, request))
            if disturbance.kind not in EVENTS | FAULTS or not target.allows(disturbance.kind):
                continue
            if disturbance.kind in FAULTS:
                fault, text = disturbance, ""
            else:
                event = _Event(self._fakes, self._partitions, strand, disturbance, fake, request)
                gaps = HAPPEN[disturbance.kind](event)
                if gaps is None:
                    continue
                text = KINDS[disturbance.kind].words.format(*gaps)
            self._log.note_applied([disturbance], strand.scheduled_name, text)
            self._turns.check_alive(strand)
        return fault

    def serve(
        self, fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
    ) -> AnyResponse:
        """Serve a call with its fault, and describe the fault in the call's line."""
        line.disturbances = (fault,)
        line.words = KINDS[fault.kind].words.format(fault.status)
        request.call.faults = ({"kind": fault.kind, "description": fault.kind},)
        return SERVE[fault.kind](_FaultyCall(fault, fake, request, proceed, line))


# -- what happens before a call ----------------------------------------------------------------------


def _crash(event: _Event) -> _Gaps:
    event.strand.crash()
    return ()


def _rotate_token(event: _Event) -> _Gaps:
    event.fakes.lasting_events.rotate(event.fake)
    return event.fake.name, span_text(ROTATED_US)


def _hold(event: _Event) -> _Gaps:
    event.fakes.lasting_events.hold(event.fake)
    return event.fake.name, span_text(HOLD_US)


def _partition(event: _Event) -> _Gaps:
    span_us = event.disturbance.span_us
    until_us = event.fakes.now_us() + span_us
    event.partitions[event.strand.root.name, event.fake.name] = until_us, event.disturbance
    return event.fake.name, span_us // 1_000_000


def _disturb_group(event: _Event) -> _Gaps | None:
    """Disturb the consumer group of a call; return None if the call has none that can be disturbed."""
    group, broker = event.request.params.get("group"), event.fake
    if not group:
        return None
    try:
        consumer_group = broker.group(group)
        if event.disturbance.kind == "redeliver":
            return (group,) if broker.faults.redeliver(group) else None
    except ContractError:
        return None  # No consumer has joined the group yet, or there have been no deliveries.
    consumer_group.rebalance()
    return (group,)


def _move_slot(event: _Event) -> _Gaps:
    slot, target = _disturb_nodes(event.disturbance.kind, event.fake, event.request)
    return slot, event.fake.name, target.address


HAPPEN: dict[Kind, _Happen] = {
    "crash": _crash, "rotate_token": _rotate_token, "hold": _hold, "partition": _partition,
    "rebalance": _disturb_group, "redeliver": _disturb_group, "moved": _move_slot, "ask": _move_slot,
}  # fmt: skip
"""What applies each kind of event."""

# -- how a call with a fault is served ---------------------------------------------------------------


def _drop(call: _FaultyCall) -> AnyResponse:
    return ConnectionEffect("drop")


def _respond(call: _FaultyCall) -> AnyResponse:
    session = session_of(call.fake, call.request)
    if session is not None:
        return _loading(session)
    status = call.fault.status
    error = ServiceError(status, HTTPStatus(status).phrase)
    return injector_of(call.fake.faults).answers.render(error)


def _lose_response(call: _FaultyCall) -> AnyResponse:
    return lost(call.proceed())


def _duplicate(call: _FaultyCall) -> AnyResponse:
    response = call.proceed()
    if call.request.call.route == "consume":
        call.line.words += _lost_records(response)
    return call.proceed()


def _failover(call: _FaultyCall) -> AnyResponse:
    _disturb_nodes(call.fault.kind, call.fake, call.request)
    return ConnectionEffect("drop", reset=True)


def _cluster_down(call: _FaultyCall) -> AnyResponse:
    _disturb_nodes(call.fault.kind, call.fake, call.request)
    return Answer(CLUSTER_DOWN, 400, (), "text/plain")  # The port makes a reply of it.


SERVE: dict[Kind, _Serve] = {
    "drop": _drop, "respond": _respond, "lose_response": _lose_response, "duplicate": _duplicate,
    "failover": _failover, "cluster_down": _cluster_down,
}  # fmt: skip
"""What serves a call with each kind of fault."""

# -- which disturbances are possible at a call -------------------------------------------------------


class Target(NamedTuple):
    """A call, as far as it determines which disturbances are possible."""

    fixture: str
    route: str
    """Empty for a call that has not been sent yet."""
    node_faults: tuple[Kind, ...] = ()
    """The faults of nodes that are possible at the command."""
    may_wait: bool = True

    def allows(self, kind: Kind) -> bool:
        at_calls = KINDS[kind].at_calls
        if at_calls is None:
            return False
        match at_calls.where:
            case "calls":
                return True
            case "requests":
                return self.route != "database-port"
            case "waits":
                return self.may_wait
            case "nodes":
                return kind in self.node_faults
            case service:
                return self.fixture == service


@functools.cache
def possible_disturbances(target: Target) -> Choices:
    """Return the disturbances of a call, without those that ``Pauses.note_point()`` adds."""
    rows = {kind: row.at_calls for kind, row in KINDS.items() if row.at_calls is not None}
    return tuple(
        (kind, detail)
        for kind, at_calls in sorted(rows.items(), key=lambda row: row[1].sort_key)
        if target.allows(kind)
        for detail in at_calls.details
    )


def faults_of_nodes(fake: Any, request: Request) -> tuple[Kind, ...]:
    """Return the faults of nodes that are possible at a command of a cluster."""
    if fake.fixture != "kv_server" or core_of(fake).app.node_faults is None:
        return ()
    session = session_of(fake, request)
    return () if session is None else possible_faults(session, _line_of(request))


def _disturb_nodes(kind: Any, fake: Fake, request: Request) -> tuple[int, Node]:
    """Let a fault happen to nodes that is possible at a command; return its slot and its node."""
    session: Any = session_of(fake, request)
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
