"""Disturbances of calls: which are possible at a call, and what each of them does."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

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
from .state import Part, TrialState, seconds
from .strands import Strand

if TYPE_CHECKING:
    from ...kv.engine.replication import Node
    from ...kv.engine.sessions import Session

_AT_CALLS: tuple[Kind, ...] = ("respond", "drop", "lose_response", "crash")


class Faults(Part):
    """Applies the disturbances of calls in a trial."""

    def __init__(self, state: TrialState) -> None:
        super().__init__(state)
        self._partitions: dict[tuple[str, str], tuple[int, Disturbance]] = {}
        """The end of each partition between a root strand and a fake, by title and name."""

    def partition(self, strand: Strand, fake: Fake) -> Disturbance | None:
        """Return the partition that keeps a strand's calls from a fake now, if there is one."""
        key = strand.root.title, fake.name
        until_us, disturbance = self._partitions.get(key, (0, None))
        return disturbance if until_us > self._fakes.now_us() else None

    def apply(
        self, disturbances: Sequence[Disturbance], strand: Strand, fake: Fake, request: Request
    ) -> Disturbance | None:
        """Apply the disturbances before a call, and return the fault of the call, if any."""
        fault = None
        faults = (*_faults_of(request.call.route), *faults_of_nodes(fake, request))
        for disturbance in disturbances:
            if disturbance.kind in FAULTS:
                if disturbance.kind not in faults:
                    continue
                fault = disturbance
            elif not self._apply_before(strand, disturbance, fake, request):
                continue
            self._log.fired.append(disturbance)
            if strand.root.crashed:
                raise Crash
        return fault

    def _apply_before(
        self, strand: Strand, disturbance: Disturbance, fake: Any, request: Request
    ) -> bool:
        """Apply a disturbance that precedes a call; return whether it was possible."""
        disturbances = self._fakes.disturbances
        words, text = KINDS[disturbance.kind].words, ""
        if disturbance.kind == "crash":
            strand.root.crashed = strand.crashed = True
            text = words
        elif disturbance.kind == "rotate_token":
            disturbances.rotate(fake)
            text = words.format(fake.name, seconds(ROTATED_US))
        elif disturbance.kind == "hold" and fake.fixture == "vector_index":
            disturbances.hold(fake)
            text = words.format(fake.name, seconds(HOLD_US))
        elif disturbance.kind == "partition":
            span = int(disturbance.detail or PARTITION)
            until_us = self._fakes.now_us() + span * 1_000_000
            self._partitions[strand.root.title, fake.name] = until_us, disturbance
            text = words.format(fake.name, span)
        elif disturbance.kind in ("rebalance", "redeliver"):
            group = request.params.get("group")
            text = words.format(group) if _disturb_group(disturbance.kind, fake, group) else ""
        elif disturbance.kind in faults_of_nodes(fake, request):
            slot, target = _disturb_nodes(disturbance.kind, session_of(fake, request), request)
            text = words.format(slot, fake.name, target.address)
        if text:
            self._state.add_line(strand.name, text, disturbances=[disturbance])
        return bool(text)

    def serve(
        self, fault: Disturbance, fake: Fake, request: Request, proceed: Proceed, line: Line
    ) -> AnyResponse:
        """Serve a call with its fault, and describe the fault in the call's line."""
        status = int(fault.detail or 503) if fault.kind == "respond" else 503
        line.disturbances, line.words = (fault,), KINDS[fault.kind].words.format(status)
        request.call.faults = ({"kind": fault.kind, "description": fault.kind},)
        if fault.kind == "drop":
            return ConnectionEffect("drop")
        if fault.kind in ("failover", "cluster_down"):
            _disturb_nodes(fault.kind, session_of(fake, request), request)
            if fault.kind == "failover":
                return ConnectionEffect("drop", reset=True)
            return Answer(CLUSTER_DOWN, 400, (), "text/plain")  # The port makes a reply of it.
        if fault.kind == "respond":
            session = session_of(fake, request)
            if session is not None:
                return _loading(session)
            return injector_of(fake.faults).answers.render(
                ServiceError(status, HTTPStatus(status).phrase)
            )
        response = proceed()
        if fault.kind == "lose_response":
            return lost(response)
        if request.call.route == "consume":
            line.words += _lost_records(response)
        return proceed()


@functools.cache
def possible_disturbances(fixture: str, route: str, *, may_wait: bool) -> Choices:
    """Return the disturbances of a call, which may not have been sent yet, without pauses of
    all strands.
    """
    disturbances: list[tuple[Kind, str]] = []
    if fixture == "broker":
        disturbances += [("rebalance", ""), ("redeliver", "")]
    if fixture == "vector_index":
        disturbances.append(("hold", ""))
    disturbances += [(kind, "") for kind in _faults_of(route)]
    if may_wait:
        disturbances += [("delay", str(DELAY)), *(("slow", str(span)) for span in SLOW)]
    return (*disturbances, ("rotate_token", ""), ("partition", str(PARTITION)))


def _faults_of(route: str) -> tuple[Kind, ...]:
    """Return the faults of a call that are possible on its transport."""
    return _AT_CALLS if route == "database-port" else (*_AT_CALLS, "duplicate")


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


def _disturb_group(kind: str, broker: Any, group: str | None) -> bool:
    """Disturb a consumer group; return whether that was possible."""
    if broker.fixture != "broker" or not group:
        return False
    try:
        consumer_group = broker.group(group)
        if kind == "redeliver":
            return bool(broker.faults.redeliver(group))
    except ContractError:
        return False  # No consumer has joined the group yet, or there have been no deliveries.
    consumer_group.rebalance()
    return True


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
