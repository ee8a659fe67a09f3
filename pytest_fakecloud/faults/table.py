"""The faults of one fake, in the order in which requests pass through them.

The table is applied between authentication and the endpoint. A request passes through every
matching rule, level by level: first the rules that delay it or call the test's code, then the rules
that break the connection before the engine, then the rules that damage the response, and last the
rules that respond instead of the endpoint. Rules of the same level apply in the order they were
added, so ``answer(503, times=1)`` followed by ``answer(429)`` gives one 503 and then 429s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ContractError, ServiceError, shown
from ..core.matching import Field
from ..core.recording.recorder import is_own
from ..http.encoding import phrase
from ..http.messages import JSON_TYPE, Answer, Effect, HeaderPairs, Request, Response, Serve
from .answers import checked, checked_body, checked_headers, checked_status, checked_type
from .fault import Rule
from .kinds import DownRule, lost, truncated

if TYPE_CHECKING:
    from ..core.ids import RandomStream
    from ..core.timekeeper import Timekeeper
    from ..http.app import App

Step = int | None | tuple[int, Any] | Answer | Literal["drop", "hang", "lose_answer", "truncate"]
"""One step of a sequence: a status, None for a normal response, ``(status, body)``, or a fault's
name.
"""


class FaultTable:
    """The rules of one fake.

    ``fact_fields`` are the facts that rules can match, by default the facts of the app. A service
    with its own kinds of faults applies them with ``claim()``.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    shut = False
    """Whether ``down()`` currently refuses all connections."""
    _closing: threading.Event | None = None

    def __init__(self, stream: Callable[[], RandomStream], clock: Timekeeper) -> None:
        self.clock = clock
        self.gate: Callable[[bool], None] | None = None
        """A function that makes the fake stop (True) or start (False) listening; None if the fake
        has no server.
        """
        self._app: App | None = None
        self._new_stream = stream
        self._lock = threading.Lock()
        self._gate_lock = threading.Lock()
        self.active: tuple[Rule, ...] = ()
        """The rules that can still fire, in the order in which a request passes through them."""
        self._all: list[Rule] = []
        self._closed = False

    @cached_property
    def stream(self) -> RandomStream:
        """The random stream from which rules draw."""
        # Created on first use, because most fakes never need it. setdefault() gives two threads
        # that arrive together the same stream.
        made: RandomStream = vars(self).setdefault("stream", self._new_stream())
        return made

    def attach(self, app: App) -> None:
        """Take the facts, names and error format that faults need from the app.

        Facts that a service has set for its own faults are kept.
        """
        if not self.fact_fields:
            self.fact_fields = app.fact_fields
        self._app = app

    @property
    def call_words(self) -> Callable[[], Iterable[str]]:
        """A function that returns the names of routes and commands, or nothing if no app is
        attached.
        """
        return tuple if self._app is None else self._app.words

    @property
    def dump(self) -> Callable[[object], bytes] | None:
        """The service's JSON encoder, for bodies given as objects."""
        return None if self._app is None else self._app.dump

    def render(self, error: ServiceError) -> Answer:
        """Return an error in the service's format, for faults with a status but no body."""
        if self._app is None:
            return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")
        return self._app.render_error(error)

    def act(self, kind: str, caller: FrameType, **data: object) -> None:
        """Record for reports that the test changed a fault, unless the caller belongs to this
        package.
        """
        recorder = getattr(self._app, "recorder", None)
        if recorder is not None and not is_own(caller):
            recorder.record_action(kind, caller, recorder.reserve(), **data)

    def add(self, rule: Rule) -> None:
        with self._lock:
            self.active = tuple(sorted((*self.active, rule), key=lambda each: each.order))
            self._all.append(rule)
        self._look_at_gate()

    def remove(self, rule: Rule) -> None:
        """Remove a rule, so that it never fires again."""
        with self._lock:
            rule.taken_back = True
            self._retire(rule)
        self._look_at_gate()

    def clear(self) -> None:
        """Remove all rules, including those that never fired."""
        with self._lock:
            gone, self.active = self.active, ()
            self._all.clear()
        for rule in gone:
            rule.taken_back = True
        self._look_at_gate()

    def unused(self) -> list[Rule]:
        """Return the rules that should have fired but never did."""
        return [rule for rule in self._all if rule.must_fire and not rule.hits]

    def __bool__(self) -> bool:
        # True if any fault can fire. Requests then use the socket.
        return bool(self.active)

    def pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        with self._lock:
            if self._closing is None:
                # Wait for an Event, because tools that freeze the process's time do not affect it.
                self._closing = threading.Event()
            if self._closed:
                self._closing.set()
        self._closing.wait(seconds)

    def close(self) -> None:
        """End all delays that are in progress."""
        with self._lock:
            self._closed = True
            if self._closing is not None:
                self._closing.set()

    def claim(self, kind: str, subject: Any) -> Rule | None:
        """Return the first fault of a service's own kind that fires on the subject, and count the
        hit.

        The subject is a ``Request``, or an object whose ``call`` has ``facts``, ``route``,
        ``method``, ``path`` and ``fault``.
        """
        for rule in self.active:
            if rule.kind == kind and self._claim(rule, subject):
                return rule
        return None

    def run(self, request: Request, serve: Serve) -> Response:
        """Return the response to a request; a matching fault can replace the response from
        ``serve()``.
        """
        return self._pass_through(self.active, request, serve)

    def _pass_through(self, rules: tuple[Rule, ...], request: Request, serve: Serve) -> Response:
        for index, rule in enumerate(rules):
            # Skip rules of the class Rule itself: they are of a service's own kind, which the
            # service applies with claim().
            if type(rule) is not Rule and (hit := self._claim(rule, request)):
                inner = partial(self._pass_through, rules[index + 1 :], request, serve)
                return rule.apply(request, inner, hit)
        return serve()

    def answer_maker(
        self,
        status: int,
        body: object,
        headers: HeaderPairs | Mapping[str, str],
        content_type: str | None,
    ) -> Callable[[], Answer]:
        """Return a function that makes a response from the test's values.

        Raises ``ContractError`` if the values are invalid.
        """
        checked_status(status)
        listed = checked_headers(headers)
        for name, value in listed:
            if name.lower() == "content-type":
                content_type = value
        listed = tuple(pair for pair in listed if pair[0].lower() != "content-type")
        kind = checked_type(content_type)
        raw = None if body is None else checked_body(body, self.dump)
        usual = "text/plain; charset=utf-8" if isinstance(body, bytes | str) else JSON_TYPE

        def make() -> Answer:
            if raw is not None:
                return Answer(raw, status, listed, kind or usual)
            answer = self.render(ServiceError(status, phrase(status), headers=listed))
            if kind is not None:
                answer.content_type = kind
            return self.dumped(answer)

        return make

    def dumped(self, answer: Answer) -> Answer:
        """Encode the body of the test's response; raise ``ContractError`` if the response is
        invalid.
        """
        return checked(answer, self.dump)

    def step(self, step: Step) -> Callable[[Serve], Response]:
        """Return a function that applies one step of a sequence; raise ``ContractError`` if it is
        invalid.
        """
        if step is None:
            return lambda serve: serve()
        if step in ("drop", "hang"):
            effect = Effect(step)
            return lambda serve: effect
        if step == "lose_answer":
            return lambda serve: lost(serve())
        if step == "truncate":
            return lambda serve: truncated(serve())
        if isinstance(step, Answer):
            ready = self.dumped(step)
            return lambda serve: Answer(ready.body, ready.status, ready.headers, ready.content_type)
        if isinstance(step, tuple) and len(step) == 2:
            make = self.answer_maker(step[0], step[1], (), None)
        elif isinstance(step, int):
            make = self.answer_maker(step, None, (), None)
        else:
            raise ContractError(
                f"{shown(step)} is not a step: pass a status, None, (status, body), an Answer, "
                "or one of 'drop', 'hang', 'lose_answer', 'truncate'"
            )
        return lambda serve: make()

    def _claim(self, rule: Rule, request: Any) -> int:
        """Count a matching request; return the number of the hit if the rule fires on it, otherwise
        0.
        """
        # Call the predicate without the lock, because it is the test's code and may read the plan.
        if not rule.active or not rule.matches(request):
            return 0
        with self._lock:
            if not rule.active:
                return 0
            rule.seen += 1
            if rule.seen <= rule.skip or not rule.wants():
                return 0
            rule.hits += 1
            hit = rule.hits
            if not rule.active:
                self._retire(rule)
        call, description = request.call, rule.description
        call.fault = description if call.fault is None else f"{call.fault}, {description}"
        call.faults = (*call.faults, rule.applied)
        return hit

    def _retire(self, rule: Rule) -> None:
        self.active = tuple(each for each in self.active if each is not rule)

    def _look_at_gate(self) -> None:
        if self._is_down() is self.shut:
            return
        # Call the gate with a lock and check again afterwards, so that its last call is right even
        # if two threads change the rules.
        with self._gate_lock:
            while self.gate is not None and (down := self._is_down()) is not self.shut:
                self.shut = down
                self.gate(down)

    def _is_down(self) -> bool:
        return any(isinstance(rule, DownRule) and rule.whole for rule in self.active)
