"""The faults of one fake, in the order in which requests pass through them.

The table is applied between authentication and the endpoint. A request passes through every
matching rule, level by level: first the rules that delay it or call the test's code, then the rules
that break the connection before the engine, then the rules that damage the response, and last the
rules that respond instead of the endpoint. Rules of the same level apply in the order they were
added, so ``answer(503, times=1)`` followed by ``answer(429)`` gives one 503 and then 429s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.matching import Field
from ..core.recorder import code_place, is_own
from ..http.messages import AnyResponse, Request, Serve
from .answers import AnswerMaker
from .fault import Rule

if TYPE_CHECKING:
    from ..core.clock import Timekeeper
    from ..core.ids import RandomStream
    from ..http.app import App


class FaultTable:
    """The rules of one fake.

    ``fact_fields`` are the facts of requests that rules can match, which are those of the app.
    ``service_fields`` are the facts that rules of the service's own kinds match, if these rules do not
    match requests.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    service_fields: ClassVar[Mapping[str, Field] | None] = None
    refusing = False
    """Whether ``down()`` currently refuses all connections."""

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
        self._all: list[Rule] = []
        # Wait for an Event, because tools that freeze the process's time do not affect it.
        self._closed = threading.Event()

    def attach(self, app: App) -> None:
        """Take names, error format and facts from the app."""
        self.fact_fields = app.fact_fields
        self.answers.app = app

    def record_change(self, kind: str, caller: FrameType, **data: object) -> None:
        """Record for reports that the test, not this package, changed a fault."""
        recorder = getattr(self.answers.app, "recorder", None)
        if recorder is not None and not is_own(caller):
            recorder.record_action(kind, code_place(caller), recorder.reserve(), None, dict, data)

    def add(self, rule: Rule) -> None:
        with self._lock:
            self.active = tuple(sorted((*self.active, rule), key=lambda each: each.order))
            self._all.append(rule)
        self._update_refusing()

    def remove(self, rule: Rule) -> None:
        with self._lock:
            rule.removed = True
            self._retire(rule)
        self._update_refusing()

    def clear(self) -> None:
        """Remove all rules, including those that are unused."""
        with self._lock:
            gone, self.active = self.active, ()
            self._all.clear()
        for rule in gone:
            rule.removed = True
        self._update_refusing()

    def unused(self) -> list[Rule]:
        """Return the rules that were used less often than planned."""
        return [rule for rule in self._all if rule.used < rule.planned]

    def __bool__(self) -> bool:
        # True if any fault can fire. Requests then use the socket.
        return bool(self.active)

    def pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """End all delays that are in progress."""
        self._closed.set()

    def claim(self, kind: str, subject: Any) -> Rule | None:
        """Count a hit of the first fault of a service's kind that fires on a subject; return it.

        The subject's ``call`` has ``facts``, ``route``, ``method``, ``path`` and ``fault``.
        """
        for rule in self.active:
            if rule.kind == kind and self._fires(rule, subject):
                return rule
        return None

    def run(
        self, request: Request, serve: Serve, rules: tuple[Rule, ...] | None = None
    ) -> AnyResponse:
        """Return the response to a request from the rules (None: all active) or ``serve()``."""
        rules = self.active if rules is None else rules
        for index, rule in enumerate(rules):
            if not rule.claimed_by_service and self._fires(rule, request):
                return rule.apply(request, partial(self.run, request, serve, rules[index + 1 :]))
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
        self.active = tuple(each for each in self.active if each is not rule)

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
