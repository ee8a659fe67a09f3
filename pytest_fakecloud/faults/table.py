"""Faults, the rules behind them, and the order in which requests pass through the rules of a fake.

The table is applied between authentication and the endpoint. A request passes through every
matching rule, level by level: rules that delay it or call the test's code, that break the
connection before the engine, that damage the response, and that respond instead of the endpoint.
Rules of the same level apply in the order they were added, so ``answer(503, times=1)`` followed by
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
from functools import cached_property, partial
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
from ..core.timers import Signal, monotonic
from ..http.app import FAULTS, App
from ..http.messages import Answer, AnyResponse, HeaderPairs, Request, Serve
from .answers import AnswerMaker, Response

# Levels of rules, in the order in which a request passes through them (see the module ``table``).
WAIT, CUT, SPOIL, REPLACE = range(4)
Respond: TypeAlias = Callable[[Serve], AnyResponse]
"""Returns the response to a request on which a rule fires. ``serve()`` is the usual response."""
_COMMON = frozenset({"times", "skip", "route", "when"})
_closing = Signal()
"""Wakes the delays of all fakes when one of them closes."""


class Rule:
    """The rule behind a fault, with its effect (``respond``) and its level (``order``). ``hits``
    counts how often it fired; a strict test fails if ``used`` is less than ``planned``.
    """

    claimed_by_service: ClassVar[bool] = False
    """Whether the service applies the rule itself, so that requests skip it."""
    must_fire: bool = True
    """Whether the rule must be used as often as planned."""
    deed: ClassVar[str] = "fired"
    """What ``used`` counts, as a verb in the past tense."""
    refuses_all: bool = False
    """Whether the fake stops listening while the rule is active, instead of serving requests."""

    def __init__(
        self,
        table: FaultTable,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond = lambda serve: serve(),
        order: int = REPLACE,
    ) -> None:
        self.order = order
        self._respond = respond
        self.table = table
        self.kind = kind
        self.description = description
        self.hits = 0
        self.seen = 0
        self.origin = _caller()
        check_fields(matchers, {*_COMMON, *self.fields}, "fault")
        self.times = optional(whole(1)).read("times", matchers.get("times"))
        self.skip = optional(whole(0)).read("skip", matchers.get("skip")) or 0
        self.route: str | re.Pattern[str] | None = matchers.get("route")
        self.when: Callable[[Any], object] | None = matchers.get("when")
        if self.when is not None and not callable(self.when):
            raise ContractError(
                f"when={shown(self.when)} is not a function: pass a predicate on the request"
            )
        self.facts = {
            name: wanted
            for name, wanted in matchers.items()
            if wanted is not None and name not in _COMMON
        }
        self._query = self._query_of_calls()
        self._when = None if self.when is None else Question("when", self.when)
        self.removed = False

    def _query_of_calls(self) -> Query:
        """Return the conditions on the call of a request."""
        fields = {
            name: self.fields[name]._replace(read=partial(field_of, name=name))
            for name in self.facts
        }
        if self.route is None:
            return Query(self.facts, fields, "fault")
        app = self.table.answers.app
        names = CallNames(tuple if app is None else app.words)
        fields["route"] = Field(names, NamesOf, parts=NamesOf.each_command)
        return Query({"route": self.route, **self.facts}, fields, "fault")

    @property
    def fields(self) -> Mapping[str, Field]:
        """The facts that the rule can match."""
        return self.table.fact_fields

    @property
    def active(self) -> bool:
        return not self.removed and (self.times is None or self.hits < self.times)

    @property
    def planned(self) -> int:
        """The number of times that the rule must fire: ``times``, or once if there is no limit."""
        if not self.must_fire:
            return 0
        return 1 if self.times is None else self.times

    @property
    def used(self) -> int:
        """The number that is compared with ``planned``."""
        return self.hits

    @property
    def shortfall(self) -> str:
        """A description of an unused rule: ``never fired``, ``fired 1 of 2 planned times``."""
        return shortfall(self.deed, self.used, self.planned)

    @property
    def applied(self) -> dict[str, str]:
        """The entry that is added to ``faults`` of a call when the rule fires on it."""
        return {"kind": self.kind, "description": self.description}

    @cached_property
    def fault(self) -> Fault:
        """The object that represents this rule in the test."""
        return Fault(self)

    @property
    def limits(self) -> list[str]:
        """The given matchers, as ``name=value``."""
        counts = {"times": self.times, "skip": self.skip or None}
        given = {**counts, "route": self.route, **self.facts, "when": self.when}
        return [f"{name}={brief(value)}" for name, value in given.items() if value is not None]

    def __repr__(self) -> str:
        given = ", ".join(self.limits)
        limits = f" [{given}]" if given else ""
        text = f"{self.description}{limits}, {counted(self.hits, 'hit')}"
        return f"<{text}, set {self.origin}>" if self.origin else f"<{text}>"

    def matches(self, request: Any) -> bool:
        """Return whether the fault matches; raise ``ContractError`` if a predicate raises."""
        try:
            # The test's function is last, because it is slowest.
            return self._query(request.call) and (self._when is None or self._when.agrees(request))
        except ContractError as error:
            raise ContractError(f"a predicate of {shown(self)} failed: {error}") from error

    def decide(self) -> bool:
        """Return whether to fire. Called for each matching request, with the table's lock held."""
        return True

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        """Return the response to a request on which the fault fires."""
        return self._respond(serve)


class ServiceRule(Rule):
    """A rule of a service's own kind, which the service applies with ``FaultTable.claim()``."""

    claimed_by_service = True

    @property
    def fields(self) -> Mapping[str, Field]:
        """The facts of requests, or of the service's own subjects, that the rule can match."""
        table = self.table
        return table.fact_fields if table.service_fields is None else table.service_fields


class Fault:
    """One injected fault.

    A strict test fails if its fault never fired, or less often than its ``times`` (of ``sequence()``
    the number of steps, of ``crash_after_response()`` 1 unless given). As a context manager, it is
    removed at the end.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    @property
    def kind(self) -> str:
        """The name of the method of ``faults`` that injected the fault."""
        return self._rule.kind

    @property
    def description(self) -> str:
        """A description of the fault's effect."""
        return self._rule.description

    @property
    def hits(self) -> int:
        """The number of times that the fault has fired."""
        return self._rule.hits

    @property
    def active(self) -> bool:
        """Whether the fault can still fire."""
        return self._rule.active

    def remove(self) -> None:
        """Remove the fault, so that it never fires again."""
        self._rule.table.withdraw(self._rule, sys._getframe(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rule.table.withdraw(self._rule, sys._getframe(1))

    def __repr__(self) -> str:
        return repr(self._rule)


def rule_of(fault: Fault) -> Rule:
    return fault._rule


setting_over: ContextVar[str] = ContextVar("setting_over", default="")
"""The interface through which a fault is being set; empty if it is the test's code."""


def _caller() -> str:
    if way := setting_over.get():
        return f"over {way}"
    frame = next((one for one in stack_of(sys._getframe(1)) if not is_own(one)), None)
    return f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


class RandomRule(Rule):
    """Applies a step to a random share of the requests.

    Decided here: strict mode requires as many draws as hits are planned, because chance may prevent
    hits, and too few requests are a mistake of the test.
    """

    deed = "was drawn"
    rate = 1.0
    """The probability with which the rule fires."""

    @property
    def used(self) -> int:
        return max(0, self.seen - self.skip)

    def decide(self) -> bool:
        return self.table.stream.random() < self.rate


class RateLimitRule(Rule):
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
        self._used = 0

    def decide(self) -> bool:
        now = self.table.clock.now_us()
        if now >= self._end_us:
            self._end_us = now + self._per_us
            self._used = 0
        self._used += 1
        return self._used > self._limit

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        seconds = str(max(1, math.ceil((self._end_us - self.table.clock.now_us()) / 1_000_000)))
        limit = ("RateLimit-Limit", str(self._limit)), ("RateLimit-Remaining", "0")
        headers = [("Retry-After", seconds), *limit, ("RateLimit-Reset", seconds)]
        return self._responder(headers)(serve)


class CallRule(Rule):
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
    def applied(self) -> dict[str, str]:
        return {**super().applied, "function": self._name, "moment": self._moment}

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        if self._moment == "before":
            given = self._run(request)
            return serve() if given is None else given
        response = serve()
        if isinstance(response, Answer):
            request.call.status = response.status
        given = self._run(request)
        return response if given is None else given

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
            return self.table.answers.prepared(result)
        except ContractError as error:
            raise ContractError(f"the response of {shown(self)}: {error}") from error


class FaultTable:
    """The rules of one fake. ``fact_fields`` are the facts of requests that rules can match,
    ``service_fields`` those of the service's own rules, if these do not match requests.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    service_fields: ClassVar[Mapping[str, Field] | None] = None
    refusing = False
    """Whether ``down()`` currently refuses all connections."""
    _closed = False

    def __init__(self, stream: RandomStream, clock: Timekeeper) -> None:
        self.stream = stream
        """The random stream from which rules draw."""
        self.clock = clock
        self.gate: Callable[[bool], None] | None = None
        """Makes the fake stop (True) or start (False) listening; None if it has no server."""
        self.answers = AnswerMaker()
        self._lock = threading.Lock()
        self._gate_lock = threading.Lock()
        self.active: tuple[Rule, ...] = ()
        """The rules that can still fire, in the order in which a request passes through them."""
        self._leave: Callable[[], None] | None = None
        """Removes the table from its app's chain; None if it is not in the chain."""
        self._all: list[Rule] = []

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

    def add(self, rule: Rule) -> None:
        with self._lock:
            self._activate(sorted((*self.active, rule), key=lambda each: each.order))
            self._all.append(rule)
        self._update_refusing()

    def remove(self, rule: Rule) -> None:
        with self._lock:
            rule.removed = True
            self._retire(rule)
        self._update_refusing()

    def withdraw(self, rule: Rule, caller: FrameType) -> None:
        """Remove a rule, and record this if the test did."""
        self.remove(rule)
        self.record_change("remove_fault", caller, fault=rule.description)

    def clear(self) -> None:
        """Remove all rules, including those that are unused."""
        with self._lock:
            gone = self.active
            self._activate(())
            self._all.clear()
        for rule in gone:
            rule.removed = True
        self._update_refusing()

    def kept(self) -> list[Rule]:
        """Return the rules that were not removed, also those that cannot fire any more."""
        return [rule for rule in self._all if not rule.removed]

    def unused(self) -> list[Rule]:
        """Return the rules that were used less often than planned."""
        return [rule for rule in self._all if rule.used < rule.planned]

    def __bool__(self) -> bool:
        # True if any fault can fire. Requests then use the socket.
        return bool(self.active)

    def pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        deadline = monotonic() + seconds
        while (left := deadline - monotonic()) > 0:
            seen = _closing.version
            if self._closed:
                return
            _closing.sleep(seen, left)

    def close(self) -> None:
        """End all delays that are in progress, and all later ones."""
        self.gate = None
        self._closed = True
        _closing.notify()

    def claim(
        self, kind: str, subject: Any, fits: Callable[[Any], bool] = lambda rule: True
    ) -> Rule | None:
        """Count a hit of the first fault of a service's kind that fires on a subject; return it.

        ``fits`` returns whether a rule applies to the subject, apart from its matchers. The
        subject's ``call`` has ``facts``, ``route``, ``method``, ``path`` and ``fault``.
        """
        for rule in self.active:
            if rule.kind == kind and fits(rule) and self._fires(rule, subject):
                return rule
        return None

    def run(self, request: Request, serve: Serve) -> AnyResponse:
        """Return the response to a request from the active rules or ``serve()``."""
        try:
            return self._apply(self.active, request, serve)
        finally:
            recorder = self._recorder()
            if recorder is not None:
                end_faults(request.call, recorder.reserve())

    def _apply(self, rules: Sequence[Rule], request: Request, serve: Serve) -> AnyResponse:
        for index, rule in enumerate(rules):
            if not rule.claimed_by_service and self._fires(rule, request):
                return rule.apply(request, partial(self._apply, rules[index + 1 :], request, serve))
        return serve()

    def _fires(self, rule: Rule, request: Any) -> bool:
        """Count a matching request; return whether the rule fires on it."""
        # Call the predicate without the lock, because it is the test's code and may read the plan.
        if not rule.active or not rule.matches(request):
            return False
        with self._lock:
            if not rule.active:
                return False
            rule.seen += 1
            if rule.seen <= rule.skip or not rule.decide():
                return False
            rule.hits += 1
            if not rule.active:
                self._retire(rule)
        call, description = request.call, rule.description
        call.fault = description if call.fault is None else f"{call.fault}, {description}"
        call.faults = (*call.faults, rule.applied)
        return True

    def _retire(self, rule: Rule) -> None:
        self._activate(each for each in self.active if each is not rule)

    def _activate(self, rules: Iterable[Rule]) -> None:
        """Set the rules that can fire. The app's chain contains the table only while there are any."""
        self.active = tuple(rules)
        app, leave = self.answers.app, self._leave
        if self.active and leave is None and app is not None:
            self._leave = app.chain.add(FAULTS, self.run)
        elif leave is not None and not self.active:
            self._leave = None
            leave()

    def _update_refusing(self) -> None:
        if self._must_refuse() is self.refusing:
            return
        # Call the gate with a lock and check again afterwards: two threads may change the rules.
        with self._gate_lock:
            while self.gate is not None and (down := self._must_refuse()) is not self.refusing:
                self.refusing = down
                try:
                    self.gate(down)
                except BaseException:
                    self.refusing = not down  # so that the next change of the rules tries again
                    raise

    def _must_refuse(self) -> bool:
        return any(rule.refuses_all for rule in self.active)
