"""One injected fault, and the kinds of faults that need more than a function."""

from __future__ import annotations

import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from ..core.calls import Call, CallNames, HeaderPairs, NamesOf, field_of
from ..core.errors import ContractError, brief, counted, shortfall, shown
from ..core.field_types import discard_awaitable, positional_parameters
from ..core.frames import is_own, stack_of
from ..core.matching import Field, Query, Question, check_fields
from ..core.settings import optional, whole
from ..core.threads import step_aside
from ..http.messages import Answer, AnyResponse, ConnectionEffect, Proceed, Request
from .answers import Response

if TYPE_CHECKING:
    from .injector import Injector

# Levels of faults, in the order in which a request passes through them (see the module ``plan``).
WAIT, CUT, SPOIL, REPLACE = range(4)
Respond: TypeAlias = Callable[[Proceed], AnyResponse]
"""Returns the response to a request on which a fault fires. ``proceed()`` is the usual response."""
_COMMON = frozenset({"times", "skip", "route", "when"})
_MOST_NUMBERS = 20
"""Number of calls that a fault remembers, the newest."""


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
    _is_of_service: ClassVar[bool] = False
    """Whether the service applies the fault itself, so that requests skip it."""
    _must_fire: bool = True
    """Whether the fault must be used as often as planned."""
    _deed: ClassVar[str] = "fired"
    """What ``_used`` counts, as a verb in the past tense."""
    _refuses_all: bool = False
    """Whether the fake stops listening while the fault is active, instead of serving requests."""

    def __init__(
        self,
        injector: Injector,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond = lambda proceed: proceed(),
        level: int = REPLACE,
    ) -> None:
        self.kind = kind
        self.description = description
        self.hits = 0
        self._injector = injector
        self._level = level
        self._respond = respond
        self._seen = 0
        self._source: Mapping[str, Any] | None = None
        self._numbers = deque[int](maxlen=_MOST_NUMBERS)
        """The numbers of the last calls on which the fault has fired."""
        self._removed = False
        self._origin = _caller()
        check_fields(matchers, {*_COMMON, *self._fields}, "fault")
        self._check_matchers(matchers)
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

    def _set_source(self, source: Mapping[str, Any]) -> None:
        """Remember the JSON with which a state file or a request injected the fault."""
        self._source = source

    def _written(self) -> Mapping[str, Any] | None:
        """Return what is left of the fault as a state file has it; None if it was not JSON."""
        if self._source is None:
            return None
        written: dict[str, Any] = dict(self._source)
        if self._times is not None:
            written["times"] = self._times - self.hits
        if self._skip:
            written["skip"] = max(0, self._skip - self._seen)
        return written

    def remove(self) -> None:
        """Remove the fault, so that it never fires again."""
        self._injector.withdraw(self, sys._getframe(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._injector.withdraw(self, sys._getframe(1))

    def __repr__(self) -> str:
        matchers = ", ".join(self._limits)
        limits = f" [{matchers}]" if matchers else ""
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
        app = self._injector.app()
        names = CallNames(tuple if app is None else app.words)
        fields["route"] = Field(names, NamesOf, parts=NamesOf.each_command)
        return Query({"route": self._route, **self._facts}, fields, "fault")

    def _check_matchers(self, matchers: Mapping[str, Any]) -> None:
        """Raise ``ContractError`` for a known matcher that cannot apply to faults of this kind."""

    @property
    def _fields(self) -> Mapping[str, Field]:
        """The facts that the fault can match."""
        return self._injector.fact_fields

    @property
    def _limits(self) -> list[str]:
        """The given matchers, as ``name=value``."""
        counts = {"times": self._times, "skip": self._skip or None}
        matchers = {**counts, "route": self._route, **self._facts, "when": self._when}
        return [f"{name}={brief(value)}" for name, value in matchers.items() if value is not None]

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
    def _entry(self) -> dict[str, str]:
        """The entry that is added to ``faults`` of a call when the fault fires on it."""
        return {"kind": self.kind, "description": self.description}

    def _end(self) -> None:
        """Let the fault never fire again. Only its injector calls this."""
        self._removed = True

    def _applies_to(self, request: Request) -> bool:
        """Return whether the fault applies to requests like this: unless it names commands, it skips
        those with which a client sets up its connection (decided here).
        """
        # ``route`` also matches the names of commands: it names some if it is not the call's own route.
        names_commands = (
            "command" in self._facts
            or "words" in self._facts
            or self._route not in (None, request.call.route)
        )
        app = self._injector.app()
        return names_commands or app is None or not app.is_handshake(request.call)

    def _matches(self, request: Any) -> bool:
        """Return whether the fault matches; raise ``ContractError`` if a predicate raises."""
        try:
            # The test's function is last, because it is slowest.
            return self._query(request.call) and (
                self._predicate is None or self._predicate.agrees(request)
            )
        except ContractError as error:
            raise ContractError(f"a predicate of {shown(self)} failed: {error}") from error

    def _count(self) -> bool:
        """Count a matching request; if the fault fires on it, count a hit and return True. Called with
        the injector's lock held.
        """
        if not self.active:
            return False
        self._seen += 1
        if self._seen <= self._skip or not self._decide():
            return False
        self.hits += 1
        return True

    def _note_on(self, call: Call) -> None:
        """Record on a call that the fault has fired on it."""
        call.faults = (*call.faults, self._entry)
        # A delivery is recorded after its faults have fired.
        if isinstance(call, Call):
            self._numbers.append(call.number)

    def _decide(self) -> bool:
        """Return whether to fire. Called for each matching request, with the injector's lock held."""
        return True

    def _respond_to(self, request: Request, proceed: Proceed) -> AnyResponse:
        """Return the response to a request on which the fault fires."""
        return self._respond(proceed)


class FaultTerms(NamedTuple):
    """The terms on which a fault fires, for the control API."""

    where: Mapping[str, Any]
    """The given conditions by name, ``route`` first."""
    times: int | None
    skip: int
    source: Mapping[str, Any] | None
    """The JSON with which a state file or a request injected the fault; None if code did."""
    numbers: Sequence[int]
    """The numbers of the last calls on which the fault has fired."""


def terms_of(fault: Fault) -> FaultTerms:
    """Return the terms on which a fault fires."""
    route = {} if fault._route is None else {"route": fault._route}
    where, numbers = {**route, **fault._facts}, list(fault._numbers)
    return FaultTerms(where, fault._times, fault._skip, fault._source, numbers)


class ServiceFault(Fault):
    """A fault of a service's own kind, which the service applies with ``Injector.claim()``."""

    _is_of_service = True

    @property
    def _fields(self) -> Mapping[str, Field]:
        """The facts of requests, or of the service's own subjects, that the fault can match."""
        service_fields = self._injector.service_fields
        return super()._fields if service_fields is None else service_fields

    def _check_matchers(self, matchers: Mapping[str, Any]) -> None:
        service_fields = self._injector.service_fields
        if service_fields is not None and matchers.get("route") is not None:
            raise ContractError(
                f"route={shown(matchers['route'])} names requests, but a fault of the kind "
                f"{self.kind} applies to none: pass {' or '.join(map('{}='.format, service_fields))}"
            )


setting_over: ContextVar[str] = ContextVar("setting_over", default="")
"""The interface through which a fault is being set; empty if it is the test's code."""


def _caller() -> str:
    if way := setting_over.get():
        return f"over {way}"
    frame = next((frame for frame in stack_of(sys._getframe(1)) if not is_own(frame)), None)
    return f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


class DownFault(Fault):
    """Refuses connections: without matchers all of them, otherwise those of matching requests."""

    def __init__(self, injector: Injector, matchers: Mapping[str, Any]) -> None:
        effect = ConnectionEffect("refuse", reset=True)
        super().__init__(injector, "down", "down", matchers, lambda proceed: effect, CUT)
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
        injector: Injector,
        rate: float,
        description: str,
        respond: Respond,
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(injector, "random", description, matchers, respond)
        self._rate = rate

    @property
    def _used(self) -> int:
        return max(0, self._seen - self._skip)

    def _decide(self) -> bool:
        return self._injector.stream.random() < self._rate


class RateLimitFault(Fault):
    """Lets a number of requests pass in each period of the fake's clock."""

    def __init__(
        self,
        injector: Injector,
        requests: int,
        per_us: int,
        responder: Callable[[HeaderPairs], Respond],
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(
            injector, "rate_limit", f"rate_limit {requests} per {per_us / 1e6:g} s", matchers
        )
        self._limit = requests
        self._per_us = per_us
        self._responder = responder
        self._end_us = injector.clock.now_us()
        self._requests = 0

    def _decide(self) -> bool:
        now = self._injector.clock.now_us()
        if now >= self._end_us:
            self._end_us = now + self._per_us
            self._requests = 0
        self._requests += 1
        return self._requests > self._limit

    def _respond_to(self, request: Request, proceed: Proceed) -> AnyResponse:
        seconds = str(max(1, math.ceil((self._end_us - self._injector.clock.now_us()) / 1_000_000)))
        limit = ("RateLimit-Limit", str(self._limit)), ("RateLimit-Remaining", "0")
        headers = [("Retry-After", seconds), *limit, ("RateLimit-Reset", seconds)]
        return self._responder(headers)(proceed)


class CallFault(Fault):
    """Calls the test's function before or after the endpoint."""

    def __init__(
        self,
        injector: Injector,
        function: Callable[..., object],
        moment: Literal["before", "after"],
        matchers: Mapping[str, Any],
    ) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        super().__init__(injector, "call", f"call {self._name} {moment}", matchers, level=WAIT)
        self._function = function
        self._moment = moment
        self._takes_request = bool(positional_parameters(function))

    @property
    def _entry(self) -> dict[str, str]:
        return {**super()._entry, "function": self._name, "moment": self._moment}

    def _respond_to(self, request: Request, proceed: Proceed) -> AnyResponse:
        if self._moment == "before":
            replacement = self._run(request)
            return proceed() if replacement is None else replacement
        response = proceed()
        if isinstance(response, Answer):
            request.call.status = response.status
        replacement = self._run(request)
        if isinstance(replacement, Answer):
            if isinstance(response, Answer) and response.body == replacement.body:
                replacement.altered = response.altered
            else:
                replacement.altered = request.call.reached
        return response if replacement is None else replacement

    def _run(self, request: Request) -> AnyResponse | None:
        """Call the function; return the response with which it replaces the endpoint's, or None."""
        # The function may use other connections, whose commands would wait for this request.
        step_aside()
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
            return self._injector.answers.prepared(result)
        except ContractError as error:
            raise ContractError(f"the response of {shown(self)}: {error}") from error
