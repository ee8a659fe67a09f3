"""Faults, and the order in which requests pass through the faults of a fake.

The table is applied between authentication and the endpoint. A request passes through every
matching fault, level by level: faults that delay it or call the test's code, that break the
connection before the engine, that damage the response, and that respond instead of the endpoint.
Faults of the same level apply in the order they were added, so ``answer(503, times=1)`` followed by
``answer(429)`` gives one 503 and then 429s.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeAlias

from ..core.calls import CallNames, NamesOf, end_faults, field_of
from ..core.clock import Timekeeper
from ..core.errors import ContractError, brief, counted, shortfall, shown
from ..core.field_types import discard_awaitable, positional_parameters
from ..core.ids import RandomStream
from ..core.matching import Field, Query, Question, check_fields
from ..core.recorder import Recorder, code_place, is_own, stack_of
from ..core.settings import optional, whole
from ..core.timers import monotonic
from ..http.app import FAULTS, App
from ..http.messages import Answer, AnyResponse, Effect, HeaderPairs, Request, Serve
from .answers import AnswerMaker, Response

# Levels of faults, in the order in which a request passes through them (see the module ``table``).
WAIT, CUT, SPOIL, REPLACE = range(4)
Respond: TypeAlias = Callable[[Serve], AnyResponse]
"""Returns the response to a request on which a fault fires. ``serve()`` is the usual response."""
_COMMON = frozenset({"times", "skip", "route", "when"})
_closing = threading.Condition()
"""Wakes the delays of all fakes when one of them closes."""


class Fault:
    """One injected fault.

    A strict test fails if its fault never fired, or less often than its ``times`` (of ``sequence()``
    the number of steps, of ``crash_after_response()`` 1 unless given). As a context manager, it is
    removed at the end.
    """

    kind: str
    """The name of the method of ``faults`` that injected the fault."""
    description: str
    """A description of the fault's effect."""
    hits: int
    """The number of times that the fault has fired."""
    _applied_by_service: ClassVar[bool] = False
    """Whether the service applies the fault itself, so that requests skip it."""
    _must_fire: bool = True
    """Whether the fault must be used as often as planned."""
    _deed: ClassVar[str] = "fired"
    """What ``_used`` counts, as a verb in the past tense."""
    _refuses_all: bool = False
    """Whether the fake stops listening while the fault is active, instead of serving requests."""

    def __init__(
        self,
        table: FaultTable,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond = lambda serve: serve(),
        order: int = REPLACE,
    ) -> None:
        self.kind = kind
        self.description = description
        self.hits = 0
        self._table = table
        self._order = order
        self._respond = respond
        self._seen = 0
        self._removed = False
        self._origin = _caller()
        check_fields(matchers, {*_COMMON, *self._fields}, "fault")
        self._times = optional(whole(1)).read("times", matchers.get("times"))
        self._skip = optional(whole(0)).read("skip", matchers.get("skip")) or 0
        self._route: str | re.Pattern[str] | None = matchers.get("route")
        self._when: Callable[[Any], object] | None = matchers.get("when")
        if self._when is not None and not callable(self._when):
            raise ContractError(
                f"when={shown(self._when)} is not a function: pass a predicate on the request"
            )
        self._facts = {
            name: wanted
            for name, wanted in matchers.items()
            if wanted is not None and name not in _COMMON
        }
        self._query = self._query_of_calls()
        self._predicate = None if self._when is None else Question("when", self._when)

    @property
    def active(self) -> bool:
        """Whether the fault can still fire."""
        return not self._removed and (self._times is None or self.hits < self._times)

    def remove(self) -> None:
        """Remove the fault, so that it never fires again."""
        self._table.withdraw(self, sys._getframe(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._table.withdraw(self, sys._getframe(1))

    def __repr__(self) -> str:
        given = ", ".join(self._limits)
        limits = f" [{given}]" if given else ""
        text = f"{self.description}{limits}, {counted(self.hits, 'hit')}"
        return f"<{text}, set {self._origin}>" if self._origin else f"<{text}>"

    def _query_of_calls(self) -> Query:
        """Return the conditions on the call of a request."""
        fields = {
            name: self._fields[name]._replace(read=partial(field_of, name=name))
            for name in self._facts
        }
        if self._route is None:
            return Query(self._facts, fields, "fault")
        app = self._table.answers.app
        names = CallNames(tuple if app is None else app.words)
        fields["route"] = Field(names, NamesOf, parts=NamesOf.each_command)
        return Query({"route": self._route, **self._facts}, fields, "fault")

    @property
    def _fields(self) -> Mapping[str, Field]:
        """The facts that the fault can match."""
        return self._table.fact_fields

    @property
    def _limits(self) -> list[str]:
        """The given matchers, as ``name=value``."""
        counts = {"times": self._times, "skip": self._skip or None}
        given = {**counts, "route": self._route, **self._facts, "when": self._when}
        return [f"{name}={brief(value)}" for name, value in given.items() if value is not None]

    @property
    def _planned(self) -> int:
        """The number of times that the fault must fire: ``times``, or once if there is no limit."""
        if not self._must_fire:
            return 0
        return 1 if self._times is None else self._times

    @property
    def _used(self) -> int:
        """The number that is compared with ``_planned``."""
        return self.hits

    @property
    def _shortfall(self) -> str:
        """A description of an unused fault: ``never fired``, ``fired 1 of 2 planned times``."""
        return shortfall(self._deed, self._used, self._planned)

    @property
    def _applied(self) -> dict[str, str]:
        """The entry that is added to ``faults`` of a call when the fault fires on it."""
        return {"kind": self.kind, "description": self.description}

    def _allow_unused(self) -> None:
        """Do not require that the fault fires."""
        self._must_fire = False

    def _matches(self, request: Any) -> bool:
        """Return whether the fault matches; raise ``ContractError`` if a predicate raises."""
        try:
            # The test's function is last, because it is slowest.
            return self._query(request.call) and (
                self._predicate is None or self._predicate.agrees(request)
            )
        except ContractError as error:
            raise ContractError(f"a predicate of {shown(self)} failed: {error}") from error

    def _decide(self) -> bool:
        """Return whether to fire. Called for each matching request, with the table's lock held."""
        return True

    def _apply(self, request: Request, serve: Serve) -> AnyResponse:
        """Return the response to a request on which the fault fires."""
        return self._respond(serve)


class ServiceFault(Fault):
    """A fault of a service's own kind, which the service applies with ``FaultTable.claim()``."""

    _applied_by_service = True

    @property
    def _fields(self) -> Mapping[str, Field]:
        """The facts of requests, or of the service's own subjects, that the fault can match."""
        table = self._table
        return table.fact_fields if table.service_fields is None else table.service_fields


setting_over: ContextVar[str] = ContextVar("setting_over", default="")
"""The interface through which a fault is being set; empty if it is the test's code."""


def _caller() -> str:
    if way := setting_over.get():
        return f"over {way}"
    frame = next((frame for frame in stack_of(sys._getframe(1)) if not is_own(frame)), None)
    return f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


class DownFault(Fault):
    """Refuses connections: without matchers all of them, otherwise those of matching requests."""

    def __init__(self, table: FaultTable, matchers: Mapping[str, Any]) -> None:
        effect = Effect("refuse", reset=True)
        super().__init__(table, "down", "down", matchers, lambda serve: effect, CUT)
        self._refuses_all = not self._limits  # with matchers, other requests are still served
        # A refused connection leaves no trace, so the fault may seem never to have fired.
        self._must_fire = not self._refuses_all


class RandomFault(Fault):
    """Applies a step to a random share of the requests.

    Decided here: strict mode requires as many draws as hits are planned, because chance may prevent
    hits, and too few requests are a mistake of the test.
    """

    _deed = "was drawn"

    def __init__(
        self,
        table: FaultTable,
        rate: float,
        description: str,
        respond: Respond,
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(table, "random", description, matchers, respond)
        self._rate = rate

    @property
    def _used(self) -> int:
        return max(0, self._seen - self._skip)

    def _decide(self) -> bool:
        return self._table.stream.random() < self._rate


class RateLimitFault(Fault):
    """Lets a number of requests pass in each period of the fake's clock."""

    def __init__(
        self,
        table: FaultTable,
        requests: int,
        per_us: int,
        responder: Callable[[HeaderPairs], Respond],
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(
            table, "rate_limit", f"rate_limit {requests} per {per_us / 1e6:g} s", matchers
        )
        self._limit = requests
        self._per_us = per_us
        self._responder = responder
        self._end_us = table.clock.now_us()
        self._requests = 0

    def _decide(self) -> bool:
        now = self._table.clock.now_us()
        if now >= self._end_us:
            self._end_us = now + self._per_us
            self._requests = 0
        self._requests += 1
        return self._requests > self._limit

    def _apply(self, request: Request, serve: Serve) -> AnyResponse:
        seconds = str(max(1, math.ceil((self._end_us - self._table.clock.now_us()) / 1_000_000)))
        limit = ("RateLimit-Limit", str(self._limit)), ("RateLimit-Remaining", "0")
        headers = [("Retry-After", seconds), *limit, ("RateLimit-Reset", seconds)]
        return self._responder(headers)(serve)


class CallFault(Fault):
    """Calls the test's function before or after the endpoint."""

    def __init__(
        self,
        table: FaultTable,
        function: Callable[..., object],
        moment: Literal["before", "after"],
        matchers: Mapping[str, Any],
    ) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        super().__init__(table, "call", f"call {self._name} {moment}", matchers, order=WAIT)
        self._function = function
        self._moment = moment
        self._takes_request = bool(positional_parameters(function))

    @property
    def _applied(self) -> dict[str, str]:
        return {**super()._applied, "function": self._name, "moment": self._moment}

    def _apply(self, request: Request, serve: Serve) -> AnyResponse:
        if self._moment == "before":
            replacement = self._run(request)
            return serve() if replacement is None else replacement
        response = serve()
        if isinstance(response, Answer):
            request.call.status = response.status
        replacement = self._run(request)
        return response if replacement is None else replacement

    def _run(self, request: Request) -> AnyResponse | None:
        """Call the function; return the response with which it replaces the endpoint's, or None."""
        try:
            result = self._function(request) if self._takes_request else self._function()
        except Exception as error:
            raise ContractError(f"the function of {shown(self)} failed: {shown(error)}") from error
        if discard_awaitable(result):
            raise ContractError(
                f"the function of {shown(self)} must be awaited: pass a plain function"
            )
        if not isinstance(result, Response):
            return None
        try:
            return self._table.answers.prepared(result)
        except ContractError as error:
            raise ContractError(f"the response of {shown(self)}: {error}") from error


class FaultTable:
    """The faults of one fake. ``fact_fields`` are the facts of requests that faults can match,
    ``service_fields`` those of the service's own faults, if these do not match requests.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    service_fields: ClassVar[Mapping[str, Field] | None] = None
    refusing = False
    """Whether ``down()`` currently refuses all connections."""
    _closed = False

    def __init__(self, stream: RandomStream, clock: Timekeeper) -> None:
        self.stream = stream
        """The random stream from which faults draw."""
        self.clock = clock
        self.gate: Callable[[bool], None] | None = None
        """Makes the fake stop (True) or start (False) listening; None if it has no server."""
        self.answers = AnswerMaker()
        self._lock = threading.Lock()
        self._gate_lock = threading.Lock()
        self.active: tuple[Fault, ...] = ()
        """The faults that can still fire, in the order in which a request passes through them."""
        self._leave: Callable[[], None] | None = None
        """Removes the table from its app's chain; None if it is not in the chain."""
        self._all: list[Fault] = []

    def attach(self, app: App) -> None:
        """Take names, error format and facts from the app."""
        self.fact_fields = app.fact_fields
        with self._lock:
            active = self.active
            self._activate(())  # Leave the chain of the former app, if there is one.
            self.answers.app = app
            app.faults = self
            self._activate(active)

    def record_change(self, kind: str, caller: FrameType, **data: object) -> None:
        """Record for reports that the test, not this package, changed a fault."""
        recorder = self._recorder()
        if recorder is not None and not is_own(caller):
            recorder.record_action(kind, code_place(caller), recorder.reserve(), None, data)

    def _recorder(self) -> Recorder | None:
        return getattr(self.answers.app, "recorder", None)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._activate(sorted((*self.active, fault), key=lambda fault: fault._order))
            self._all.append(fault)
        self._update_refusing()

    def remove(self, fault: Fault) -> None:
        with self._lock:
            fault._removed = True
            self._retire(fault)
        self._update_refusing()

    def withdraw(self, fault: Fault, caller: FrameType) -> None:
        """Remove a fault, and record this if the test did."""
        self.remove(fault)
        self.record_change("remove_fault", caller, fault=fault.description)

    def clear(self) -> None:
        """Remove all faults, including those that are unused."""
        with self._lock:
            gone = self.active
            self._activate(())
            self._all.clear()
        for fault in gone:
            fault._removed = True
        self._update_refusing()

    def kept(self) -> list[Fault]:
        """Return the faults that were not removed, also those that cannot fire any more."""
        return [fault for fault in self._all if not fault._removed]

    def unused(self) -> list[Fault]:
        """Return the faults that were used less often than planned."""
        return [fault for fault in self._all if fault._used < fault._planned]

    def __bool__(self) -> bool:
        # True if any fault can fire. Requests then use the socket.
        return bool(self.active)

    def pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        deadline = monotonic() + seconds
        with _closing:
            while not self._closed and (left := deadline - monotonic()) > 0:
                _closing.wait(left)

    def close(self) -> None:
        """End all delays that are in progress, and all later ones."""
        self.gate = None
        with _closing:
            self._closed = True
            _closing.notify_all()

    def claim(
        self, kind: str, subject: Any, fits: Callable[[Any], bool] = lambda fault: True
    ) -> Fault | None:
        """Count a hit of the first fault of a service's kind that fires on a subject; return it.

        ``fits`` returns whether a fault applies to the subject, apart from its matchers. The
        subject's ``call`` has ``facts``, ``route``, ``method``, ``path`` and ``fault``.
        """
        for fault in self.active:
            if fault.kind == kind and fits(fault) and self._fires(fault, subject):
                return fault
        return None

    def run(self, request: Request, serve: Serve) -> AnyResponse:
        """Return the response to a request from the active faults or ``serve()``."""
        try:
            return self._apply(self.active, request, serve)
        finally:
            recorder = self._recorder()
            if recorder is not None:
                end_faults(request.call, recorder.reserve())

    def _apply(self, faults: Sequence[Fault], request: Request, serve: Serve) -> AnyResponse:
        for index, fault in enumerate(faults):
            if not fault._applied_by_service and self._fires(fault, request):
                return fault._apply(
                    request, partial(self._apply, faults[index + 1 :], request, serve)
                )
        return serve()

    def _fires(self, fault: Fault, request: Any) -> bool:
        """Count a matching request; return whether the fault fires on it."""
        # Call the predicate without the lock, because it is the test's code and may read the plan.
        if not fault.active or not fault._matches(request):
            return False
        with self._lock:
            if not fault.active:
                return False
            fault._seen += 1
            if fault._seen <= fault._skip or not fault._decide():
                return False
            fault.hits += 1
            if not fault.active:
                self._retire(fault)
        call, description = request.call, fault.description
        call.fault = description if call.fault is None else f"{call.fault}, {description}"
        call.faults = (*call.faults, fault._applied)
        return True

    def _retire(self, fault: Fault) -> None:
        self._activate(active for active in self.active if active is not fault)

    def _activate(self, faults: Iterable[Fault]) -> None:
        """Set the faults that can fire. The app's chain contains the table only while there are any."""
        self.active = tuple(faults)
        app, leave = self.answers.app, self._leave
        if self.active and leave is None and app is not None:
            self._leave = app.chain.add(FAULTS, self.run)
        elif leave is not None and not self.active:
            self._leave = None
            leave()

    def _update_refusing(self) -> None:
        if self._must_refuse() is self.refusing:
            return
        # Call the gate with a lock and check again afterwards: two threads may change the faults.
        with self._gate_lock:
            while self.gate is not None and (down := self._must_refuse()) is not self.refusing:
                self.refusing = down
                try:
                    self.gate(down)
                except BaseException:
                    self.refusing = not down  # so that the next change of the faults tries again
                    raise

    def _must_refuse(self) -> bool:
        return any(fault._refuses_all for fault in self.active)
