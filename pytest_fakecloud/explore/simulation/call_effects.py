"""The effects of scheduled events on calls: faults, crashes, partitions and disturbed fakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ...core.errors import ContractError, ServiceError
from ...core.wording import listed
from ...faults.answers import lost
from ...handle import Handle
from ...http.messages import Answer, AnyResponse, Effect, Request, Serve
from ..disturbances import HOLD_US, ROTATED_US
from ..run import Line
from ..schedule import DELAY, FAULTS, PARTITION, SLOW, Event, Kind
from ..touches import touches_of_request
from .frames import Source, carried_source, source_of
from .state import Part, RunState, seconds
from .strands import Crash, Strand

_AT_CALLS: tuple[Kind, ...] = ("respond", "drop", "lose_response", "crash")
_FAULT_WORDS: dict[str, str] = {
    "respond": "is rejected with 503",
    "drop": "is lost before it arrives",
    "lose_response": "succeeds, but its answer is lost",
    "duplicate": "arrives twice",
}


class CallEffects(Part):
    """Applies events to calls, and adds the calls to the story."""

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._cut: dict[tuple[str, str], int] = {}
        """The time until which calls of a root strand do not reach a fake, by title and name."""
        self._served = 0

    def serve(self, strand: Strand, handle: Handle, request: Request, serve: Serve) -> AnyResponse:
        """Apply the events of a call, add the call to the story, and return its outcome."""
        now, root, title = self._world.now_us(), strand.root, strand.title
        self._served += 1
        root.work.last_call = self._served
        root.work.first_call = root.work.first_call or self._served
        self._run.calls[title] = self._run.calls.get(title, 0) + 1
        if handle.fixture == "broker":
            _note_consumer(root, handle, request)
        events = self._state.schedule.at(strand.name, strand.points)
        fault = self._apply(events, strand, handle, request) if events else ""
        app: Any = handle._app
        app.recorder.renumber(request.call, now)
        line = self.add_line(strand, request)
        self._record.touch(touches_of_request(handle, request))
        if self._cut and self._cut.get((root.title, handle.name), 0) > now:
            line.event, line.words = True, f"does not reach {handle.name}"
            return Effect("drop")
        return self._serve_faulted(fault, handle, request, serve, line) if fault else serve()

    def add_line(self, strand: Strand, request: Request) -> Line:
        line = self._record.add_line(strand.name, call=request.call)
        if self._record.stacks:
            line.lines = self._source(strand, request)
        return line

    def _source(self, strand: Strand, request: Request) -> Source:
        port = request.client[1] if request.client else 0
        lines = (
            carried_source.get()
            or self._state.sources.here()
            or self._state.sources.by_port.get(port, ())
        )
        if not lines and strand.host.loop.running is None:
            lines = source_of(sys._current_frames().get(strand.host.thread))
        return lines

    def _apply(
        self, events: Sequence[Event], strand: Strand, handle: Handle, request: Request
    ) -> str:
        """Apply the events before a call, and return the fault of the call or an empty string."""
        fault = ""
        for event in events:
            if event.kind in FAULTS:
                if event.kind not in _faults_of(request.call.route):
                    continue
                fault = event.kind
            elif not self._apply_before(strand, event, handle, request):
                continue
            self._run.fired.append(event)
            if strand.root.crashed:
                raise Crash
        return fault

    def _apply_before(self, strand: Strand, event: Event, handle: Any, request: Request) -> bool:
        """Apply an event that precedes a call; return whether it was possible."""
        disturbances = self._world.disturbances
        text = ""
        if event.kind == "crash":
            strand.root.crashed = strand.crashed = True
            text = "crashes"
        elif event.kind == "rotate_token":
            disturbances.rotate(handle)
            after = seconds(ROTATED_US)
            text = f"the token of {handle.name} is rotated; the code has the new one after {after}"
        elif event.kind == "hold" and handle.fixture == "vector_index":
            disturbances.hold(handle)
            text = f"changes of {handle.name} stay pending for {seconds(HOLD_US)}"
        elif event.kind == "partition":
            span = int(event.detail or PARTITION)
            self._cut[strand.root.title, handle.name] = self._world.now_us() + span * 1_000_000
            text = f"is cut off from {handle.name} for {span} s"
        elif event.kind in ("rebalance", "redeliver"):
            text = _disturb_group(event.kind, handle, request.params.get("group"))
        if text:
            self._record.add_line(strand.name, text, event=True)
        return bool(text)

    def _serve_faulted(
        self, fault: str, handle: Handle, request: Request, serve: Serve, line: Line
    ) -> AnyResponse:
        line.event, line.words = True, _FAULT_WORDS[fault]
        request.call.fault = fault
        if fault == "drop":
            return Effect("drop")
        if fault == "respond":
            session = session_of(handle, request)
            return _refusal(handle) if session is None else _loading(session)
        response = serve()
        if fault == "lose_response":
            return lost(response)
        if request.call.route == "consume":
            line.words += _lost_records(response)
        return serve()


def possible_events(
    handle: Handle, request: Request | None, *, may_wait: bool
) -> list[tuple[Kind, str]]:
    """Return the events of a call, without pauses of all strands; ``request`` is None before it is
    sent. ``may_wait`` tells whether the call can be delayed.
    """
    events: list[tuple[Kind, str]] = []
    if handle.fixture == "broker":
        events += [("rebalance", ""), ("redeliver", "")]
    if handle.fixture == "vector_index":
        events.append(("hold", ""))
    events += [(kind, "") for kind in _faults_of("" if request is None else request.call.route)]
    if may_wait:
        events += [("delay", str(DELAY)), *(("slow", str(span)) for span in SLOW)]
    return [*events, ("rotate_token", ""), ("partition", str(PARTITION))]


def _faults_of(route: str) -> tuple[Kind, ...]:
    """Return the faults of a call that are possible on its transport."""
    return _AT_CALLS if route == "database-port" else (*_AT_CALLS, "duplicate")


def _note_consumer(root: Strand, broker: Handle, request: Request) -> None:
    if request.route in ("consume", "commit"):
        group, instance = request.params.get("group"), request.params.get("instance")
        if group and instance:
            root.work.consumers.add((broker, group, instance))


def _refusal(handle: Handle) -> Answer:
    return handle._fault_table.answers.render(ServiceError(503, "Service Unavailable"))


def _loading(session: Any) -> Answer:
    """Return a server's answer while it loads its data; an open transaction is discarded."""
    text = "LOADING Redis is loading the dataset in memory"
    if session.queue is not None:
        session.discard_transaction()
        text = f"EXECABORT Transaction discarded because of: {text}"
    return Answer(f"-{text}\r\n".encode(), 400, (), "application/x-resp")


def _disturb_group(kind: str, broker: Any, group: str | None) -> str:
    """Disturb a consumer group; return a description, or an empty string if it was impossible."""
    if broker.fixture != "broker" or not group:
        return ""
    try:
        found = broker.group(group)
    except ContractError:
        return ""  # No consumer has joined the group yet.
    if kind == "rebalance":
        found.rebalance()
        return f"{group} rebalances"
    try:
        again = broker.faults.redeliver(group)
    except ContractError:
        return ""  # There have been no deliveries yet.
    return f"the last commit of {group} is lost" if again else ""


def _lost_records(answer: AnyResponse) -> str:
    """Describe the records of the first answer to a consume request that arrives twice."""
    if not isinstance(answer, Answer) or answer.status != 200 or not isinstance(answer.body, bytes):
        return ""
    records = json.loads(answer.body)
    places = [f"{one['topic']}-{one['partition']}@{one['offset']}" for one in records]
    return f", and the first answer with {listed(places)} is lost" if places else ""


def session_of(handle: Any, request: Request) -> Any:
    """Return the session of a command's connection, or None for an HTTP request."""
    if request.call.route != "database-port":
        return None
    return next((c.session for c in list(handle._port._open) if c.client == request.client), None)
